// What several bindings say of a record, under the same names.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "trace/bind_str.hpp"
#include "trace/read/file.hpp"
#include "trace/read/life.hpp"

namespace oddrank::trace {

inline pybind11::dict process_dict(const Process& process) {
  pybind11::dict made;
  made["pid"] = process.pid;
  made["parent_pid"] = process.parent_pid;
  made["start_time"] = process.start_time;
  made["boot_id"] = text(process.boot_id);
  made["rank"] = process.rank;
  made["local_rank"] = process.local_rank;
  made["world"] = process.world;
  made["node"] = process.node;
  made["python"] = process.python;
  made["is_child"] = process.is_child;
  made["host"] = text(process.host);
  made["hook"] = text(process.hook);
  made["arguments"] = text(process.arguments);
  return made;
}

inline const char* name_of(Life life) {
  switch (life) {
    case Life::kAlive:
      return "alive";
    case Life::kDead:
      return "dead";
    case Life::kUnknown:
      break;
  }
  return "unknown";
}

// Whether it lives, and what its record lacks.
inline void add_state(pybind11::dict& made, Life life, const Counters& counters) {
  pybind11::dict lost;
  lost["threads"] = counters.lost_threads;
  lost["codes"] = counters.lost_codes;
  lost["collectives"] = counters.lost_collectives;
  made["life"] = name_of(life);
  made["disarmed"] = counters.hook_state == static_cast<std::uint64_t>(HookState::kDisarmed);
  made["displaced_by"] = text(counters.displaced_by);
  made["lost"] = lost;
}

}  // namespace oddrank::trace

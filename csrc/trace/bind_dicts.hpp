// What several bindings say of a record, under the same names.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
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
  made["job"] = text(process.job);
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

// None: the record can't say it, or says what nobody knows.
inline const char* name_of(std::optional<End> end) {
  if (!end) return nullptr;
  switch (*end) {
    case End::kNone:
      return "no word";
    case End::kEnding:
      return "ending";
    case End::kExited:
      return "exited";
  }
  return nullptr;
}

// Whether it lives, or how it ended, and what its record lacks.
inline void add_state(pybind11::dict& made, Life life, const Counters& counters) {
  pybind11::dict lost;
  lost["threads"] = counters.lost_threads;
  lost["codes"] = counters.lost_codes;
  lost["collectives"] = counters.lost_collectives;
  made["life"] = name_of(life);
  made["end"] = name_of(counters.end);
  made["exit_code"] = counters.end == End::kExited
                          ? pybind11::object(pybind11::int_(counters.exit_code))
                          : pybind11::object(pybind11::none());
  made["raised"] = text(counters.raised);
  made["disarmed"] = counters.hook_state == static_cast<std::uint64_t>(HookState::kDisarmed);
  made["displaced_by"] = text(counters.displaced_by);
  made["lost"] = lost;
}

}  // namespace oddrank::trace

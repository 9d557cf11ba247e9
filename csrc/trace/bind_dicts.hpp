// Helpers of all bindings that read records: texts, and a process's facts under common names.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <string_view>

#include "trace/read/file.hpp"

namespace oddrank::trace {

// Decodes UTF-8; each invalid byte becomes U+FFFD.
inline pybind11::str text(std::string_view bytes) {
  PyObject* made =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<pybind11::ssize_t>(bytes.size()), "replace");
  if (made == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(made);
}

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

inline const char* name_of(Liveness life) {
  switch (life) {
    case Liveness::kAlive:
      return "alive";
    case Liveness::kDead:
      return "dead";
    case Liveness::kUnknown:
      break;
  }
  return "unknown";
}

// Returns null (None in Python) if the record holds an unknown value.
inline const char* name_of(End end) {
  switch (end) {
    case End::kNone:
      return "no word";
    case End::kEnding:
      return "ending";
    case End::kExited:
      return "exited";
  }
  return nullptr;
}

// Adds whether the process is alive, how it ended, and what its record lost.
inline void add_state(pybind11::dict& made, Liveness life, const Counters& counters) {
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

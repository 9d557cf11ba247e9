// Translates a line's writer to Python, for the bindings of logs and of stacks.
#pragma once

#include "logs/prefixes.hpp"
#include "os/to_python.hpp"

namespace oddrank {

inline py::tuple writer_tuple(const logs::Writer& w) {
  const auto said = [](const std::string& text) { return text.empty() ? Value() : Value(text); };
  return tuple_of({known_or_none(w.rank), known_or_none(w.local_rank), known_or_none(w.task),
                   known_or_none(w.host_number), known_or_none(w.pid), said(w.host), said(w.pod)});
}

}  // namespace oddrank

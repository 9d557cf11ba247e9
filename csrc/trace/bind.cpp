// Bindings of csrc/trace: translate types; no logic.
#include "trace/bind.hpp"

#include <pybind11/stl.h>

#include <string_view>

#include "trace/read/linetable.hpp"

namespace oddrank {
namespace py = pybind11;

void bind_trace(py::module_& m) {
  m.def(
      "trace_lines",
      [](std::uint32_t version_hex, const py::bytes& linetable, std::uint32_t first_line,
         const std::vector<std::uint32_t>& offsets) {
        const std::string_view bytes(linetable);
        const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
        const trace::LineTable table(version_hex, {data, bytes.size()}, first_line);
        std::vector<std::optional<std::uint32_t>> lines;
        lines.reserve(offsets.size());
        for (const std::uint32_t offset : offsets) lines.push_back(table.line_at(offset));
        return lines;
      },
      py::arg("version_hex"), py::arg("linetable"), py::arg("first_line"), py::arg("offsets"),
      "The lines at these offsets (in bytes) of the bytecode of a code object of CPython 3.10-3.14;"
      " None where there is none, and for a table that no CPython has written.");
}

}  // namespace oddrank

// What a code object says of itself, for the filter and for the dictionary. Needs the GIL; never
// raises.
#pragma once

#include <string_view>

#include "trace/hooks/code_ids.hpp"
#include "trace/hooks/cpython.hpp"
#include "trace/record/dictionary.hpp"

namespace oddrank::trace {

// Views of the code object's own strings, for as long as it lives.
CodeFacts facts_of(const PyCodeObject* code, Level level) noexcept;
std::string_view file_of(const PyCodeObject* code) noexcept;
std::size_t instructions_of(PyCodeObject* code) noexcept;
// Name of the module whose globals a frame has.
std::string_view module_of(cpython::Frame frame) noexcept;
// The own name of a module that `python -m` runs as __main__, in which the frame is; empty: a
// script.
std::string_view run_as_main(cpython::Frame frame) noexcept;
// From here on the tracer forgets the object when it is destroyed.
void watch_code(const PyCodeObject* code) noexcept;

}  // namespace oddrank::trace

// Reads code objects for the filter and the dictionary, and names of threads and tools. Needs the
// GIL, runs no Python code, leaves no Python error.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "trace/cpython/frames.hpp"
#include "trace/hooks/filter.hpp"
#include "trace/write/dictionary_writer.hpp"

namespace oddrank::trace {

// The views are of `table`, which it fills in, and of the code object's strings: valid while it
// lives.
CodeFacts facts_of(const PyCodeObject* code, Level level, std::string& table) noexcept;
std::string_view file_of(const PyCodeObject* code) noexcept;
std::size_t instructions_of(PyCodeObject* code) noexcept;
// Returns the __name__ in the frame's globals.
std::string_view module_of(cpython::Frame frame) noexcept;
// Returns the real name of the frame's module if `python -m` runs it as __main__; empty for a
// script.
std::string_view run_as_main(cpython::Frame frame) noexcept;
// Whether this is the code of a module or script itself: it runs just after its file was read.
bool is_module(const PyCodeObject* code) noexcept;
// Calls `see` with name and file of every module in sys.modules that has a file.
void for_each_module(const std::function<void(std::string_view, std::string_view)>& see);
// Makes the tracer forget the code object when it is destroyed.
void watch_code(const PyCodeObject* code) noexcept;

// Returns the thread's name in threading, else its native name (autograd: pt_autograd_0); empty if
// it is not registered yet or has no name.
std::string thread_name(const PyThreadState* state) noexcept;
// Names the tool that took a hook: module.function or the type's name of a callable given to
// sys.settrace(); the name given to sys.monitoring; "nobody" for None, which only removes a hook.
std::string tool_name(PyObject* tool) noexcept;

}  // namespace oddrank::trace

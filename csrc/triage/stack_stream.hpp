// What is known of one writer's stacks at a line of its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "triage/stack_text.hpp"

namespace oddrank::triage {

struct StackReader::Stream {
  enum class Mode : std::uint8_t { kOutside, kThread, kError, kList };
  Mode mode = Mode::kOutside;
  Writer writer;
  std::uint32_t headline = 0;
  std::uint32_t name_line = 0;  // line of `name`, a word that may be a headline
  std::uint32_t name = 0;
  std::uint32_t process = kNone;
  std::vector<SeenThread> threads;  // heads whose stack follows
  std::vector<std::uint32_t> frames;
  std::size_t indent = 0;  // of the stack's first frame, or of a traceback's head
  bool outermost_first = false;
  bool python_only = false;  // gdb's py-bt: lines with File only
  std::string debugger;      // gdb's frame whose lines may go on
  // Of a process:
  bool has_main = false;
  std::uint64_t gdb_number = 0;
  bool gdb_rises = false;
  std::vector<std::uint64_t> ids;  // of faulthandler's threads in this dump
  bool has_current = false;
  std::uint32_t fatal = 0;
  bool timeout = false;
  std::uint64_t pid = 0;
  std::uint32_t command = 0;
  // Of an error:
  SeenError error;
  SeenError::Link link = SeenError::Link::kFirst;
  std::uint32_t what = 0;  // the last "what():" or name of a C++ exception
};

}  // namespace oddrank::triage

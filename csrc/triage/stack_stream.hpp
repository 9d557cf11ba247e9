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
  Writer writer;
  std::vector<SeenThread> threads;  // heads whose stack follows
  std::vector<std::uint32_t> frames;
  std::string debugger;    // gdb's frame whose lines may go on
  std::size_t indent = 0;  // of the stack's first frame, or of a traceback's head
  std::uint32_t headline = 0;
  std::uint32_t name_line = 0;  // line of `name`, a word that may be a headline
  std::uint32_t name = 0;
  std::uint32_t process = kNone;
  Mode mode = Mode::kOutside;
  bool outermost_first = false;
  bool python_only = false;  // gdb's py-bt: lines with File only
  // Of a process:
  bool has_main = false;
  bool gdb_rises = false;
  bool has_current = false;
  bool timeout = false;
  std::uint32_t fatal = 0;
  std::uint64_t gdb_number = 0;
  std::uint64_t pid = 0;
  std::uint64_t parent = 0;
  std::vector<std::uint64_t> ids;  // of faulthandler's threads in this dump
  std::uint32_t command = 0;
  // Of an error:
  std::uint32_t what = 0;  // the last "what():" or name of a C++ exception
  SeenError error;
  SeenError::Link link = SeenError::Link::kFirst;
};

}  // namespace oddrank::triage

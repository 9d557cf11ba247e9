// What is known of one writer's stacks at a line of its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "os/mix.hpp"
#include "triage/stack_text.hpp"

namespace oddrank::triage {

// Ids of a file may be chosen so that all of them meet in one bucket of an identity hash.
struct IdHash {
  std::size_t operator()(std::uint64_t id) const noexcept {
    return static_cast<std::size_t>(mix_bits(id + kMixStep));
  }
};

struct StackReader::Stream {
  enum class Mode : std::uint8_t { kOutside, kThread, kError, kList };
  Writer writer;
  std::vector<SeenThread> threads;  // heads whose stack follows
  std::vector<std::uint32_t> frames;
  std::string debugger;    // gdb's frame whose lines may go on
  std::size_t indent = 0;  // of the stack's first frame, or of a traceback's head
  std::string headline;
  std::string name;             // a word that may be a headline
  std::uint32_t name_line = 0;  // where it stood
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
  std::unordered_set<std::uint64_t, IdHash> ids;  // of faulthandler's threads in this dump
  std::uint32_t command = 0;
  // "Process 12: command", which only py-spy's next lines prove to be no prose:
  std::optional<std::uint64_t> maybe_pid;
  std::string maybe_command;
  // Of an error:
  std::string raised;  // the last name of a C++ exception
  std::string what;    // the last "what():"
  SeenError error;
  SeenError::Link link = SeenError::Link::kFirst;
};

}  // namespace oddrank::triage

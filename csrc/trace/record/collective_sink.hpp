// What whoever sees collectives calls to have them recorded: the one thing that _torch and _core
// share, across hidden symbols. Plain; includes nothing of either.
#pragma once

#include <cstdint>
#include <string_view>

namespace oddrank::trace {

// An operation about to be issued. The views need to live for the call only.
struct CollectiveCall {
  std::string_view group;
  std::string_view operation;
  std::uint64_t bytes = 0;
  std::uint32_t tid = 0;
  std::uint16_t type = 0xFFFF;  // torch's ScalarType; all ones: no data
};

// Every function may be called from any thread, with and without the GIL, while the process ends
// and in a forked child. None of them throws, waits for Python or calls back.
struct CollectiveSink {
  // Another layout or meaning is another version: the two modules may be of different builds.
  static constexpr std::uint32_t kVersion = 1;
  static constexpr const char* kCapsule = "oddrank.collective_sink";

  std::uint32_t version = kVersion;
  // Returns the call's ticket, or 0 where nothing records: then the others are not called.
  std::uint64_t (*begin)(const CollectiveCall& call) noexcept = nullptr;
  // Its number in its group, where it has one. Before the call ends.
  void (*numbered)(std::uint64_t ticket, std::uint64_t sequence) noexcept = nullptr;
  // One of the two, once: it has ended (or failed); a device goes on with it, and no end of it will
  // be told.
  void (*end)(std::uint64_t ticket) noexcept = nullptr;
  void (*issued)(std::uint64_t ticket) noexcept = nullptr;
};

}  // namespace oddrank::trace

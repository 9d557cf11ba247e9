// The functions that _torch calls to record collectives in _core. The two modules share only this
// struct, by a capsule: their symbols are hidden. Includes no header of Python or torch.
#pragma once

#include <cstdint>
#include <string_view>

namespace oddrank::trace {

// An operation about to be issued. The views must live only during the call.
struct CollectiveCall {
  std::string_view group;
  std::string_view operation;
  std::uint64_t bytes = 0;
  std::uint32_t tid = 0;
  std::uint16_t type = 0xFFFF;  // torch's ScalarType; all ones: no data
};

// Call from any thread, with or without the GIL, also while the process ends and in a forked child.
// The functions never throw, never wait for Python and never call back.
struct CollectiveSink {
  // Increase with every change of layout or meaning: the modules may come from different builds.
  static constexpr std::uint32_t kVersion = 1;
  static constexpr const char* kCapsule = "oddrank.collective_sink";

  std::uint32_t version = kVersion;
  // Returns a ticket; 0 if nothing records: then don't call the others.
  std::uint64_t (*begin)(const CollectiveCall& call) noexcept = nullptr;
  // Sets the collective's sequence number in its group, if it has one. Call it before end().
  void (*numbered)(std::uint64_t ticket, std::uint64_t sequence) noexcept = nullptr;
  // Call exactly one of the two, once. end: the collective ended or failed. issued: a device runs
  // it, and its end will not be reported.
  void (*end)(std::uint64_t ticket) noexcept = nullptr;
  void (*issued)(std::uint64_t ticket) noexcept = nullptr;
};

class Recorder;

// Returns the sink that writes into this process's record file; for _core. `current` returns the
// recorder to use, or nullptr: not armed, stopped, or in a child just after fork. It is called from
// any thread; its recorders must never be destroyed.
const CollectiveSink& recording_sink(Recorder* (*current)() noexcept) noexcept;

}  // namespace oddrank::trace

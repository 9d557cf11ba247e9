// The border between _torch, which sees the collectives, and _core, which records them. The two
// share only CollectiveSink, by a capsule: their symbols are hidden. Includes no header of Python
// or torch.
#pragma once

#include <cstdint>
#include <string_view>

#include "trace/format/format.hpp"

namespace oddrank::trace {

// An operation about to be issued. The views must live only during the call.
struct CollectiveCall {
  GroupFacts group = {};
  std::string_view operation = {};
  CollectiveFacts facts = {};  // without ids and sequence
  // Of a back end that numbers sends and receives along with collectives (gloo): how many
  // operations it has issued in the group. The record then numbers the collectives itself.
  std::uint64_t count = kNoCount;
};

// Call from any thread, with or without the GIL, also while the process ends and in a forked child.
// The functions never throw, never wait for Python and never call back.
struct CollectiveSink {
  // Increase with every change of layout or meaning: the modules may come from different builds.
  static constexpr std::uint32_t kVersion = 4;
  static constexpr const char* kCapsule = "oddrank.collective_sink";

  std::uint32_t version = kVersion;
  // Returns a ticket; 0 if nothing records: then don't call the others.
  std::uint64_t (*begin)(const CollectiveCall& call) noexcept = nullptr;
  // Sets the collective's sequence number in its group, if it has one; not of send and recv, which
  // the record counts itself. Call it before closed().
  void (*numbered)(std::uint64_t ticket, std::uint64_t sequence) noexcept = nullptr;
  // Call it instead, before closed(), after each operation that began with a count:
  // `count` is the new one. is_issued: it is a collective, and its call did not raise an error.
  void (*counted)(std::uint64_t ticket, std::uint64_t count, bool is_issued) noexcept = nullptr;
  // Call it once. kEnd; kFailed: it ended with an error; kIssued: a device runs it, and its end
  // will not be reported.
  void (*closed)(std::uint64_t ticket, Phase phase) noexcept = nullptr;
};

// The collective recorder in _torch: reports the begin and end of every c10d operation of this
// process to `sink` from now on; it must live as long as the process. The first call adds our
// kernels to torch's dispatcher, where they stay: call it while no other thread issues a
// collective. Throws Error for a sink of another version.
void start_collectives(const CollectiveSink& sink);

// Stops reporting new operations; open ones still report their end.
void stop_collectives() noexcept;

}  // namespace oddrank::trace

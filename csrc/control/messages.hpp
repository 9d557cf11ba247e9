// What the frames say: one struct per kind with more than one field, each with pack and unpack.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oddrank::control {

// What a process is doing, as the kernel says.
enum class Life : std::uint8_t { kRunning, kStopped, kZombie, kDead, kUninterruptible };
const char* name_of(Life life) noexcept;

// Guard to root, first of all.
struct Hello {
  std::string token;
  std::int32_t rank = 0, world = 0, local_rank = 0, local_world = 0, node = 0;
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;    // of the worker: its pid may be used again
  std::uint32_t remaining_ms = 0;  // until this rank's own deadline: the earliest binds all
  std::string host;

  bool is_of_same_process(const Hello& other) const {
    return pid == other.pid && start_time == other.start_time && host == other.host;
  }
  std::string pack() const;
  // Empty where the payload is malformed, of another wire version, or out of range.
  static std::optional<Hello> unpack(std::string_view payload);
};

// Guard to root: everything known of the worker.
struct State {
  Life life = Life::kRunning;
  std::int32_t signal = 0;      // that killed it; 0: none known
  std::int32_t exit_code = -1;  // -1: none known
  std::string wchan;
  std::string stage, step;
  std::uint32_t stage_number = 0;
  std::uint64_t progress = 0;
  bool waiting = false, published = false;
  std::int32_t terminated = 0;     // SIGTERM or SIGINT seen; 0: none
  std::int32_t terminated_by = 0;  // pid of the sender as the worker sees it
  bool orphaned = false;           // its launcher is gone
  bool resolver_slow = false;      // reverse DNS of its own address gives no answer
  std::int64_t fault_age_ns = -1;  // how long ago the guard saw life change; -1: running
  std::uint32_t report = 0;        // the root's question that this answers; 0: none

  std::string pack() const;
  static std::optional<State> unpack(std::string_view payload);
};

// Root to guard to worker.
struct Go {
  std::uint32_t stage_number = 0;
  std::string stage, parameters;

  std::string pack() const;
  static std::optional<Go> unpack(std::string_view payload);
};

// Root to guard: how often to be heard.
struct Welcome {
  std::uint32_t heartbeat_ms = 250, silence_ms = 2000;

  std::string pack() const;
  static std::optional<Welcome> unpack(std::string_view payload);
};

// Root to the lowest guard of a node: whom to look at if the root is lost.
struct Roster {
  struct Process {
    std::int32_t rank = 0, pid = 0;
    std::uint64_t start_time = 0;
  };
  std::string root_host;
  std::vector<Process> processes;

  std::string pack() const;
  static std::optional<Roster> unpack(std::string_view payload);
};

// Worker to guard: how far is the root's clock from ours? (Guard to root: a number alone.)
struct ClockQuestion {
  std::uint32_t number = 0;
  std::int64_t deadline_ns = 0;  // CLOCK_MONOTONIC of this host
  bool shortcut = true;          // no difference where both read the same clock

  std::string pack() const;
  static std::optional<ClockQuestion> unpack(std::string_view payload);
};

// Root to guard: the root's CLOCK_MONOTONIC at the moment of its answer.
struct ClockReading {
  std::uint32_t number = 0;
  std::int64_t ns = 0;
  std::string clock;  // see which_clock()

  std::string pack() const;
  // Empty also for times that no clock shows: sums of two of them fit.
  static std::optional<ClockReading> unpack(std::string_view payload);
};

// Guard to worker.
struct ClockAnswer {
  std::uint32_t number = 0;
  std::int64_t offset_ns = 0;  // to add to this host's CLOCK_MONOTONIC to get the root's
  std::int64_t error_ns = 0;   // the true offset lies within this of it
  std::string trouble;         // why there is no offset; empty: there is one

  std::string pack() const;
  static std::optional<ClockAnswer> unpack(std::string_view payload);
};

}  // namespace oddrank::control

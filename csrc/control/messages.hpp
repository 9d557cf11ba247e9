// The messages in the frames: one struct per kind with more than one field. Each lists its fields
// once, for pack() and unpack().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/wire.hpp"

namespace oddrank::control {

// First field of a knock: the root refuses a guard of another version. Increase it with any change
// to a message.
inline constexpr std::uint32_t kWireVersion = 6;

// A process's state in the kernel.
enum class Liveness : std::uint8_t { kRunning, kStopped, kZombie, kDead, kUninterruptible };

// Guard to root, the first frame. The root answers with a Proof.
struct Knock {
  std::uint32_t version = kWireVersion;
  std::string nonce;

  void fields(auto& io) { io(version, nonce); }
  bool valid() const { return version == kWireVersion; }
};

// Root to guard: proves that the root knows the token, without sending it.
struct Proof {
  std::string nonce;
  std::string proof;  // see root_proof() in wire.hpp

  void fields(auto& io) { io(nonce, proof); }
};

// A worker, as its guard names it.
struct Identity {
  std::int32_t rank = 0, world = 0, local_rank = 0, local_world = 0, node = 0;
  std::string host;
  std::string launcher;  // its name; "": none, or the job survives its end
};

// Guard to root, after the root's Proof.
struct Hello : Identity {
  std::string proof;  // see guard_proof()
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;    // of the worker, in clock ticks since boot: pids are reused
  std::uint32_t remaining_ms = 0;  // until this rank's deadline; the earliest of all counts
  std::int32_t launcher_pid = 0;   // the worker's parent at the start
  std::string parting;             // why this guard gives up the root; "": it joins

  void fields(auto& io) {
    io(proof, rank, world, local_rank, local_world, node, pid, start_time, remaining_ms, host,
       launcher_pid, launcher, parting);
  }
  bool is_of_same_process(const Hello& other) const {
    return pid == other.pid && start_time == other.start_time && host == other.host;
  }
};

// The part of a worker's state that ProcessWatch reads.
struct ProcessState {
  Liveness life = Liveness::kRunning;
  std::int32_t signal = 0;      // the signal that killed it; 0: none known
  std::int32_t exit_code = -1;  // of exit(); -1: none known
  std::string wchan;

  void fields(auto& io) { io(life, signal, exit_code, wchan); }
};

// Guard to root: the worker's state.
struct State : ProcessState {
  std::string stage, step;
  std::uint32_t stage_number = 0;
  std::uint64_t progress = 0;
  bool waiting = false, published = false;
  std::int32_t terminated = 0;     // SIGTERM or SIGINT seen; 0: none
  std::int32_t terminated_by = 0;  // pid of the sender as the worker sees it
  bool orphaned = false;           // its launcher has ended
  bool resolver_slow = false;      // reverse DNS of its own address took over 1 s
  std::int64_t fault_age_ns = -1;  // time since the guard saw `life` change; -1: running
  // Of guards that watch a training (csrc/run).
  std::int64_t quiet_ms = -1;   // since a step or collective began or ended; -1: unknown
  std::uint64_t oom_kills = 0;  // in the worker's cgroup, since the guard began
  std::uint32_t report = 0;     // the root's question answered by this; 0: none

  void fields(auto& io) {
    ProcessState::fields(io);
    io(stage, step, stage_number, progress, waiting, published, terminated, terminated_by, orphaned,
       resolver_slow, fault_age_ns, quiet_ms, oom_kills, report);
  }
  bool valid() const { return life <= Liveness::kUninterruptible; }
};

// Root to guard to worker.
struct Go {
  std::uint32_t stage_number = 0;
  std::string stage, parameters;

  void fields(auto& io) { io(stage_number, stage, parameters); }
};

// Root to guard: the heartbeat interval, and the silence after which a peer counts as silent.
struct Welcome {
  std::uint32_t heartbeat_ms = 250, silence_ms = 2000;

  void fields(auto& io) { io(heartbeat_ms, silence_ms); }
  bool valid() const { return heartbeat_ms != 0 && silence_ms >= heartbeat_ms; }
};

// Root to the guard of a node's lowest rank: the node's ranks, for the partial view.
struct Roster {
  struct Process {
    std::int32_t rank = 0, pid = 0;
    std::uint64_t start_time = 0;

    void fields(auto& io) { io(rank, pid, start_time); }
  };
  std::string root_host;
  std::vector<Process> processes;

  void fields(auto& io) { io(root_host, processes); }
};

// Worker to guard: asks for the root's clock offset. (Guard to root: only a number.)
struct ClockQuestion {
  std::uint32_t number = 0;
  std::int64_t deadline_ns = 0;  // CLOCK_MONOTONIC of this host
  bool shortcut = true;          // offset 0 if both read the same clock

  void fields(auto& io) { io(number, deadline_ns, shortcut); }
};

// Root to guard: the root's CLOCK_MONOTONIC when it answers.
struct ClockReading {
  std::uint32_t number = 0;
  std::int64_t ns = 0;
  std::string clock;  // see which_clock()

  void fields(auto& io) { io(number, ns, clock); }
  // Rejects impossible times, so that sums of two never overflow.
  bool valid() const { return ns >= 0 && ns <= INT64_MAX / 4 && clock.size() <= 256; }
};

// Guard to worker: the root's clock offset.
struct ClockAnswer {
  std::uint32_t number = 0;
  std::int64_t offset_ns = 0;  // this host's CLOCK_MONOTONIC + offset_ns = the root's
  std::int64_t error_ns = 0;   // the true offset is within offset_ns +- error_ns
  std::string trouble;         // why there is no offset; empty: valid

  void fields(auto& io) { io(number, offset_ns, error_ns, trouble); }
};

template <typename Message>
std::string pack(Message message) {
  Packer io;
  message.fields(io);
  return io.take();
}

// Returns empty if the payload is too short or a value is out of range. Texts of a message that has
// no kLongestText of its own are as long as kSmallFrame at most.
template <typename Message>
std::optional<Message> unpack(std::string_view payload) {
  Message message;
  std::size_t longest = kSmallFrame;
  if constexpr (requires { Message::kLongestText; }) longest = Message::kLongestText;
  Unpacker io(payload, longest);
  message.fields(io);
  if (!io.ok()) return std::nullopt;
  if constexpr (requires { message.valid(); }) {
    if (!message.valid()) return std::nullopt;
  }
  return message;
}

}  // namespace oddrank::control

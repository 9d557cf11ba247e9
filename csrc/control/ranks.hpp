// What the root knows of every rank, and when a stage is over. Pure bookkeeping: no sockets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/messages.hpp"

namespace oddrank::control {

enum class Contact : std::uint8_t { kNever, kOk, kSilent, kClosed };
const char* name_of(Contact contact) noexcept;

struct RankRecord {
  Contact contact = Contact::kNever;
  Hello hello;  // without token; rank -1 until it came
  State state;
  bool has_result = false;                    // of the current stage
  std::shared_ptr<const std::string> result;  // shared: snapshots are taken while it grows
  bool failed = false;                        // in this stage or before: it comes to no other
  std::string failure;
  // When the first of its faults happened (state, contact or failure), on the root's monotonic
  // clock; 0: none. A rank that goes on after a stop has none.
  std::int64_t fault_ns = 0;
  std::int64_t fault_known_ns = 0;  // when the root heard of it: graces count from here
  std::int64_t terminated_known_ns = 0;
  std::int64_t last_heard_ns = 0;
};

enum class Reason : std::uint8_t { kOpen, kComplete, kFault, kDeadline, kTerminated };
const char* name_of(Reason reason) noexcept;

// Times in nanoseconds of CLOCK_MONOTONIC. Not thread-safe: the hub holds a lock.
class Ranks {
 public:
  explicit Ranks(int world, std::int64_t silence_ns);

  int world() const noexcept { return static_cast<int>(records_.size()); }
  const std::vector<RankRecord>& records() const noexcept { return records_; }
  RankRecord& record(int rank) { return records_[static_cast<std::size_t>(rank)]; }

  void joined(int rank, Hello hello, std::int64_t now);
  void set_state(int rank, State state, std::int64_t now);
  // Of another stage than the current one: ignored.
  void set_result(int rank, std::uint32_t stage, std::string payload);
  void set_failure(int rank, std::uint32_t stage, std::string text, std::int64_t now);
  void set_contact(int rank, Contact contact, std::int64_t now);

  // A stage begins: results and failures of the last one are forgotten. In stage 0, join, having
  // come is the result.
  void begin(std::uint32_t stage, std::int64_t deadline_ns, std::int64_t now);
  std::uint32_t stage() const noexcept { return stage_; }
  int results() const noexcept { return results_; }

  // Whether the current stage is over: complete | everybody is accounted for | some time after a
  // fault, so that others can say what they saw | deadline. `full`: nobody else can join.
  Reason decide(std::int64_t now, bool full) const;

 private:
  // 0: no fault; else how long others may still report after this one.
  std::int64_t grace(const RankRecord& record) const noexcept;
  void note_fault(RankRecord& record, std::int64_t happened, std::int64_t now);

  std::vector<RankRecord> records_;
  std::int64_t silence_ns_;
  std::uint32_t stage_ = 0;
  std::int64_t began_ns_ = 0;
  std::int64_t deadline_ns_ = 0;
  int results_ = 0;
  int faults_ = 0;      // ranks with a fault
  int terminated_ = 0;  // ranks with a signal from their launcher
};

}  // namespace oddrank::control

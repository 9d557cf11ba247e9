// The root's record of every rank, and the end of a stage. Pure bookkeeping: no sockets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/messages.hpp"

namespace oddrank::control {

enum class Contact : std::uint8_t { kNever, kOk, kSilent, kClosed, kGaveUp };
const char* name_of(Contact contact) noexcept;

struct RankRecord {
  Contact contact = Contact::kNever;
  Hello hello;  // without its proof; rank -1 until it arrives
  State state;
  bool has_result = false;                    // in the current stage
  std::shared_ptr<const std::string> result;  // shared with snapshots; null in join
  bool failed = false;                        // in this stage or an earlier one
  std::string failure;
  std::string parting;  // why its guard, still alive, gave up the root
  // When its first fault (state, contact or failure) happened, on the root's CLOCK_MONOTONIC; 0: no
  // fault now. A stopped rank that continues has no fault.
  std::int64_t fault_ns = 0;
  std::int64_t fault_known_ns = 0;  // when the root heard of it: grace periods begin here
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
  // These two ignore every stage but the current one.
  void set_result(int rank, std::uint32_t stage, std::string payload);
  void set_failure(int rank, std::uint32_t stage, std::string text, std::int64_t now);
  void set_parting(int rank, std::string why, std::int64_t now);
  void set_contact(int rank, Contact contact, std::int64_t now);

  // Begins a stage and forgets the results of the last one. Failures stay: a rank that failed joins
  // no later stage. In stage 0, join, a rank's hello is its result.
  void begin(std::uint32_t stage, std::int64_t deadline_ns, std::int64_t now);
  int results() const noexcept { return results_; }

  // Returns why the current stage is over, or kOpen. kComplete: all results are there. kFault:
  // every rank has a result or a fault, or the grace period after a fault is over, in which other
  // ranks can report, or in join the root has no room. kTerminated: 2 s after a launcher's signal
  // without a fault. kDeadline: none of these by the deadline.
  //
  // `full_since`: when the root ran out of file descriptors; 0: it has room.
  Reason decide(std::int64_t now, std::int64_t full_since) const;

 private:
  // Returns the time for other ranks to report after this one's fault; 0: it has no fault.
  std::int64_t grace(const RankRecord& record) const noexcept;
  void note_fault(RankRecord& record, std::int64_t happened, std::int64_t now);

  std::vector<RankRecord> records_;
  std::int64_t silence_ns_;
  std::uint32_t stage_ = 0;
  std::int64_t began_ns_ = 0;
  std::int64_t deadline_ns_ = 0;
  int results_ = 0;
  int faults_ = 0;      // number of ranks with a fault
  int terminated_ = 0;  // number of ranks that got SIGTERM or SIGINT
};

}  // namespace oddrank::control

// The root's record of every rank, and the end of a stage. Pure bookkeeping: no sockets.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/messages.hpp"
#include "os/clock.hpp"

namespace oddrank::control {

enum class Contact : std::uint8_t { kNever, kOk, kSilent, kClosed, kGaveUp };
inline const char* name_of(Contact contact) noexcept {
  static constexpr std::array kNames{"never", "ok", "silent", "closed", "gave-up"};
  return kNames[static_cast<std::size_t>(contact)];
}

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
  std::uint32_t asked = 0, answered = 0;  // the root's last question that it got, and answered
};

enum class Reason : std::uint8_t { kOpen, kComplete, kFault, kDeadline, kTerminated };
inline const char* name_of(Reason reason) noexcept {
  static constexpr std::array kNames{"", "complete", "fault", "deadline", "terminated"};
  return kNames[static_cast<std::size_t>(reason)];
}

// Times in nanoseconds of CLOCK_MONOTONIC. Not thread-safe: the hub holds a lock.
class Ranks {
 public:
  explicit Ranks(int world, std::int64_t silence_ns)
      : records_(static_cast<std::size_t>(world)), silence_ns_(silence_ns) {
    for (RankRecord& record : records_) {
      record.hello.rank = record.hello.node = record.hello.local_rank = -1;
    }
  }

  int world() const noexcept { return static_cast<int>(records_.size()); }
  const std::vector<RankRecord>& records() const noexcept { return records_; }
  RankRecord& record(int rank) { return records_[static_cast<std::size_t>(rank)]; }

  void joined(int rank, Hello hello, std::int64_t now) {
    RankRecord& one = record(rank);
    // A guard that comes back tells its state next: until then the last one is known.
    if (one.contact == Contact::kNever) one.state.stage = "join";
    one.contact = Contact::kOk;
    one.asked = 0;  // not on this connection
    one.hello = std::move(hello);
    one.hello.proof.clear();
    one.last_heard_ns = now;
    if (stage_ == 0 && !one.has_result) {
      one.has_result = true;
      ++results_;
    }
    note_fault(one, now, now);
  }
  void set_state(int rank, State state, std::int64_t now) {
    RankRecord& one = record(rank);
    if (state.terminated != 0 && one.terminated_known_ns == 0) {
      one.terminated_known_ns = now;
      ++terminated_;
    }
    const std::int64_t age = std::max<std::int64_t>(state.fault_age_ns, 0);
    if (state.report != 0) one.answered = state.report;
    one.state = std::move(state);
    note_fault(one, now - age, now);
  }
  // These two ignore every stage but the current one.
  void set_result(int rank, std::uint32_t stage, std::string payload) {
    RankRecord& one = record(rank);
    if (stage != stage_ || stage == 0 || one.has_result) return;
    one.has_result = true;
    one.result = std::make_shared<const std::string>(std::move(payload));
    ++results_;
  }
  void set_failure(int rank, std::uint32_t stage, std::string text, std::int64_t now) {
    RankRecord& one = record(rank);
    // A failure counts even if the rank has a result (in join every rank that came has one).
    if (stage != stage_ || one.failed) return;
    one.failed = true;
    one.failure = std::move(text);
    note_fault(one, now, now);
  }
  void set_parting(int rank, std::string why, std::int64_t now) {
    record(rank).parting = std::move(why);
    set_contact(rank, Contact::kGaveUp, now);
  }
  void set_contact(int rank, Contact contact, std::int64_t now) {
    RankRecord& one = record(rank);
    if (one.contact == contact) return;
    one.contact = contact;
    note_fault(one, now, now);
  }

  // Begins a stage and forgets the results of the last one. Failures stay: a rank that failed joins
  // no later stage. In stage 0, join, a rank's hello is its result.
  void begin(std::uint32_t stage, std::int64_t deadline_ns, std::int64_t now) {
    stage_ = stage;
    began_ns_ = now;
    deadline_ns_ = deadline_ns;
    results_ = 0;
    for (RankRecord& one : records_) {
      one.has_result = stage == 0 && one.contact != Contact::kNever;
      results_ += one.has_result ? 1 : 0;
      one.result.reset();
      // `failed` stays: the rank will not join this stage.
      note_fault(one, now, now);
    }
  }
  int results() const noexcept { return results_; }

  // Returns why the current stage is over, or kOpen. kComplete: all results are there. kFault:
  // every rank has a result or a fault, or the grace period after a fault is over, in which other
  // ranks can report, or in join the root has no room. kTerminated: 2 s after a launcher's signal
  // without a fault. kDeadline: none of these by the deadline.
  //
  // `full_since`: when the root ran out of file descriptors; 0: it has room.
  Reason decide(std::int64_t now, std::int64_t full_since) const {
    if (results_ == world() && faults_ == 0) return Reason::kComplete;
    // All results are here: a fault since then belongs to the next stage.
    if (results_ == world() && stage_ != 0) return Reason::kComplete;
    if (stage_ == 0 && full_since != 0 && now - std::max(full_since, began_ns_) > kQuickGraceNs) {
      return Reason::kFault;
    }
    if (faults_ > 0) {
      int accounted = 0;
      bool over = false;
      for (const RankRecord& one : records_) {
        const std::int64_t grace_ns = grace(one);
        const bool quick = grace_ns != 0 && one.state.life != Liveness::kStopped;
        accounted += (one.has_result && stage_ != 0) || quick ? 1 : 0;
        over = over || (grace_ns != 0 && now - std::max(one.fault_known_ns, began_ns_) >= grace_ns);
      }
      if (over || accounted == world()) return Reason::kFault;
    } else if (terminated_ > 0) {
      for (const RankRecord& one : records_) {
        if (one.terminated_known_ns != 0 &&
            now - std::max(one.terminated_known_ns, began_ns_) >= kTerminatedGraceNs) {
          return Reason::kTerminated;
        }
      }
    }
    return now >= deadline_ns_ ? Reason::kDeadline : Reason::kOpen;
  }

 private:
  static constexpr std::int64_t kQuickGraceNs = 500 * kMs;
  static constexpr std::int64_t kStoppedGraceNs = 2'000 * kMs;
  static constexpr std::int64_t kTerminatedGraceNs = 2'000 * kMs;

  // Returns the time for other ranks to report after this one's fault; 0: it has no fault.
  std::int64_t grace(const RankRecord& record) const noexcept {
    if (record.contact == Contact::kSilent || record.contact == Contact::kClosed ||
        record.contact == Contact::kGaveUp) {
      return kQuickGraceNs;
    }
    // A rank that never joined is a fault in every stage but join.
    if (record.contact == Contact::kNever) return stage_ == 0 ? 0 : kQuickGraceNs;
    switch (record.state.life) {
      case Liveness::kDead:
      case Liveness::kZombie:
        return kQuickGraceNs;
      case Liveness::kStopped:
        return kStoppedGraceNs;
      case Liveness::kUninterruptible:  // may recover: the stage's deadline decides
      case Liveness::kRunning:
        break;
    }
    // Without its launcher the job has lost its store, and nothing waits for the rank.
    if (record.state.orphaned && !record.hello.launcher.empty()) return kQuickGraceNs;
    if (!record.failed) return 0;
    // A rank that failed while waiting is a victim: give the culprit's fault time to show here.
    return record.state.waiting ? std::max(kStoppedGraceNs, silence_ns_ + kQuickGraceNs)
                                : kQuickGraceNs;
  }
  void note_fault(RankRecord& record, std::int64_t happened, std::int64_t now) {
    const bool had = record.fault_known_ns != 0;
    const bool has = grace(record) != 0;
    if (has && !had) {
      record.fault_ns = happened;
      record.fault_known_ns = now;
      ++faults_;
    } else if (had && !has) {
      record.fault_ns = record.fault_known_ns = 0;
      --faults_;
    }
  }

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

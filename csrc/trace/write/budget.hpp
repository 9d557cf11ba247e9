// Keeps recording within its budget: counts the events of each code object, and decides which ones
// are recorded less closely for a while.
//
// The budget is a share of CPU time. What is not spent is saved, up to that of a second: code that
// runs often for a moment only is left alone. Once nothing is saved, the code objects with the
// highest cost go down, lines -> calls -> where -> off, until the rest costs half of the budget.
// What code at the lowest level still costs cannot be saved, and is not counted. Nor is code that
// the filter has at `where`: those are the places to wait, by which a judge tells why a rank waits.
// Later each is tried at its full level again: a code object that is quiet stays there.
// A function that waits has no events, so it does not go down.
//
// Reads no clock and no Python. The GIL guards it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/format/format.hpp"

namespace oddrank::trace {

// CPU time of one event in ns, with the interpreter's part.
struct EventCosts {
  double line = 0;
  double call = 0;  // begin or end of a call
};

// From now on a code object is recorded at this level.
struct LevelChange {
  std::uint32_t code = 0;  // its id in the dictionary
  Level level = Level::kOff;
  bool lasting = false;  // false: a trial, or its end; not worth a note in the record
};

class Budget {
 public:
  // `share` of the CPU time, above 0; 0: no limit. Keeps the code objects and their levels.
  void start(double share, EventCosts costs) noexcept;
  // No code goes below this level from now on. At the begin it is off.
  void set_lowest(Level lowest) noexcept { lowest_ = lowest; }
  // Gives all code objects the filter's level again. Returns what changes, as review().
  std::span<const LevelChange> raise_all() noexcept;
  // Forgets all code objects.
  void clear() noexcept;

  // Adds a code object at the filter's level, if it is new. Ids count from 1. Returns false if out
  // of memory: then it has no level and must not be counted.
  bool add(std::uint32_t code, Level wanted) noexcept;
  // The level at which an added code object is recorded now.
  Level level(std::uint32_t code) const noexcept { return heats_[code].level; }
  // Whether a code object, or any, is recorded less closely than the filter says.
  bool is_lowered(std::uint32_t code) const noexcept {
    return heats_[code].level < heats_[code].wanted;
  }
  bool lowers_any() const noexcept { return !lowered_.empty(); }
  // Every event of an added code object is counted. The hot path. 0 counts for nothing.
  void count_line(std::uint32_t code) noexcept { ++counts_[code].lines; }
  void count_call(std::uint32_t code) noexcept { ++counts_[code].calls; }
  // Number of events after which a thread calls review() again.
  std::uint32_t pause() const noexcept;

  // Decides anew. `cpu_ns`: CPU time of the calling thread since it last called this. `now_ns`: any
  // clock that is never set. Returns what changes now, valid until the next call of add().
  std::span<const LevelChange> review(std::uint64_t cpu_ns, std::uint64_t now_ns) noexcept;

 private:
  struct Counts {
    std::uint32_t lines = 0, calls = 0;    // since the last review
    float past_lines = 0, past_calls = 0;  // of the reviews before, each counting half of the next
  };
  struct Heat {
    Level wanted = Level::kOff;  // the filter's
    Level level = Level::kOff;   // now
    Level stated = Level::kOff;  // in the record
    std::uint8_t failures = 0;   // times in a row that it went down, trials too
    bool on_trial = false;
    std::uint64_t next_ns = 0;   // when the next trial may begin, or this one ends
    std::uint64_t risen_ns = 0;  // when it came back to the filter's level
    double trial_cpu_ns = 0;
    double trial_lines = 0, trial_calls = 0;
    double trial_spent_ns = 0;  // of all code objects
  };

  bool can_fall(const Heat& heat) const noexcept {
    return heat.level > lowest_ && heat.wanted > Level::kWhere;
  }
  double cost(Level level, double lines, double calls) const noexcept;
  // What the code cost lately, as far as it can be saved.
  double past_cost(std::uint32_t code) const noexcept;
  double take_in(std::uint64_t cpu_ns) noexcept;
  void judge_trials(std::uint64_t now_ns) noexcept;
  void lower() noexcept;
  void begin_trials(std::uint64_t now_ns) noexcept;
  void set(std::uint32_t code, Level level) noexcept;
  void put_off(Heat& heat) noexcept;

  double share_ = 0;
  EventCosts costs_;
  Level lowest_ = Level::kOff;
  double saved_ns_ = 0;
  double window_ns_ = 0;  // CPU time of past_lines and past_calls
  std::uint64_t now_ns_ = 0;
  std::uint32_t trials_ = 0;
  std::vector<Counts> counts_ = std::vector<Counts>(1);  // by code id; 0 is no code
  std::vector<Heat> heats_ = std::vector<Heat>(1);
  std::vector<std::uint32_t> lowered_;  // code on trial too
  std::vector<std::uint32_t> hottest_;  // a heap
  std::vector<LevelChange> changes_;
};

}  // namespace oddrank::trace

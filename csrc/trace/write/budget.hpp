// Keeps recording within its budget: counts the events of each code object, and decides which ones
// are recorded less closely for a while.
//
// The budget is a share of CPU time. An unspent budget is saved, up to one second's: code that
// runs often for a moment only is left alone. Once nothing is saved, the code objects with the
// highest cost go down, lines -> calls -> where -> off, until the rest costs half of the budget.
// The cost of code at the lowest level cannot be saved, and is not counted. Code that the filter
// has at `where` never goes down: by these frames a judge says why a rank waits.
// Later each is tried at its full level again: a code object that is quiet stays there.
// A function that waits has no events, so it does not go down.
//
// Where the interpreter runs all code slower while it gives events, that is not enough: if it takes
// three times the budget, all code rests, without any events, and is tried again as above.
//
// Reads no clock and no Python. The GIL guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
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
  void start(double share, EventCosts costs) noexcept {
    share_ = share;
    costs_ = costs;
    saved_ns_ = rest_saved_ns_ = share * kSavedNs;
    rests_ = false;
    rest_failures_ = 0;
  }
  // No code goes below this level from now on. At the begin it is off.
  void set_lowest(Level lowest) noexcept { lowest_ = lowest; }
  // Ends a rest of all code. A small budget may be spent from then on: a trial.
  void wake(std::uint64_t now_ns) noexcept {
    rests_ = false;
    woke_ns_ = now_ns;
    saved_ns_ = rest_saved_ns_ = share_ * kTrialSavedNs;
    window_ns_ = floor_ns_ = 0;
  }
  // Whether all code rests: the caller takes its events away.
  bool rests() const noexcept { return rests_; }
  bool is_rested(std::uint64_t now_ns) const noexcept { return rests_ && now_ns >= rested_ns_; }
  // Gives all code objects the filter's level again. Returns what changes, as review().
  std::span<const LevelChange> raise_all() noexcept {
    changes_.clear();
    for (const std::uint32_t code : lowered_) {
      heats_[code].on_trial = false;
      heats_[code].failures = 0;
      set(code, heats_[code].wanted);
    }
    lowered_.clear();
    trials_ = 0;
    return changes_;
  }
  // Forgets all code objects.
  void clear() noexcept {
    counts_.resize(1);
    heats_.resize(1);
    lowered_.clear();
    trials_ = 0;
    window_ns_ = floor_ns_ = 0;
    saved_ns_ = rest_saved_ns_ = share_ * kSavedNs;
    rests_ = false;
    rest_failures_ = 0;
  }

  // Adds a code object at the filter's level, if it is new. Ids count from 1. Returns false if out
  // of memory: then it has no level and must not be counted.
  bool add(std::uint32_t code, Level wanted) noexcept {
    const std::size_t size = std::size_t{code} + 1;
    if (size > heats_.capacity()) {
      try {
        const std::size_t room = std::max(size, 2 * heats_.capacity());
        counts_.reserve(room);
        // review() must not allocate.
        lowered_.reserve(room);
        hottest_.reserve(room);
        changes_.reserve(room);
        heats_.reserve(room);  // the last: its capacity stands for all
      } catch (const std::exception&) {
        return false;
      }
    }
    if (size > heats_.size()) {
      counts_.resize(size);
      heats_.resize(size);
    }
    Heat& heat = heats_[code];
    if (heat.wanted == Level::kOff) heat.wanted = heat.level = heat.stated = wanted;
    return true;
  }
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
  std::uint32_t pause() const noexcept {
    const std::uint32_t pause = trials_ > 0        ? kPauseInTrial
                                : lowered_.empty() ? kPause
                                                   : kPauseIfLowered;
    // A review looks at all code objects: this many events cost ten times as much.
    return std::max(pause, static_cast<std::uint32_t>(counts_.size() / 4));
  }

  // Decides anew. `cpu_ns`: CPU time of the calling thread since it last called this. `now_ns`: any
  // clock that is never set. `may_rest`: see rests(). Returns what changes now, valid until the
  // next call of add().
  std::span<const LevelChange> review(std::uint64_t cpu_ns, std::uint64_t now_ns,
                                      bool may_rest = false) noexcept {
    changes_.clear();
    if (share_ <= 0) return changes_;
    now_ns_ = now_ns;
    const double spent = take_in(cpu_ns);
    const double most = share_ * kSavedNs;
    saved_ns_ = std::min(saved_ns_ + static_cast<double>(cpu_ns) * share_ - spent, most);
    const double room = share_ * kRestShare;
    rest_saved_ns_ =
        std::min(rest_saved_ns_ + static_cast<double>(cpu_ns) * room - new_floor_ns_, most);
    bool too_hot = judge_trials(now_ns);
    if (saved_ns_ < 0 || rest_saved_ns_ < 0) too_hot = too_hot || floor_ns_ > window_ns_ * room;
    rest_saved_ns_ = std::max(rest_saved_ns_, -most);
    if (too_hot && may_rest) {
      begin_rest();
    } else if (saved_ns_ < 0) {
      lower();
      saved_ns_ = std::max(saved_ns_, -most);
    } else if (saved_ns_ > most / 2) {
      begin_trials(now_ns);
    }
    return changes_;
  }

 private:
  // Events between two reviews: about 0.2 ms of recording.
  static constexpr std::uint32_t kPause = 4096;
  static constexpr std::uint32_t kPauseIfLowered = 1024;
  static constexpr std::uint32_t kPauseInTrial = 256;
  // The most that recording may save up: the budget of so much CPU time.
  static constexpr double kSavedNs = 1e9;
  // The share of the budget that is left after lowering: the rest pays for trials.
  static constexpr double kTarget = 0.5;
  static constexpr std::uint64_t kTrialNs = 1'000'000'000;
  // A trial does not fail before so many events.
  static constexpr double kFewest = 256;
  static constexpr std::uint64_t kWaitNs = 1'000'000'000;
  static constexpr int kMostFailures =
      4;  // a lowered code object waits up to 2^4 s for its next trial
  // Code that has been at its level for so long begins with the shortest wait again.
  static constexpr std::uint64_t kLongNs = 60'000'000'000;
  static constexpr std::uint32_t kMostTrials = 4;
  // All code rests if its events cost more than this many times the budget, even where only calls
  // are recorded, or nothing. With the interpreter's own part, an event then costs at least this.
  static constexpr double kRestShare = 3;
  static constexpr double kFloorNs = 60;
  // The most that all code may spend once it is tried again: the budget of so much CPU time.
  static constexpr double kTrialSavedNs = kSavedNs / 30;
  // Cost of the begin or end of a call that only moves the stack.
  static constexpr double kWhereShare = 0.8;

  static Level below(Level level) noexcept {
    return static_cast<Level>(static_cast<int>(level) - 1);
  }

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
  double cost(Level level, double lines, double calls) const noexcept {
    const double call = level == Level::kWhere ? costs_.call * kWhereShare : costs_.call;
    return (level == Level::kLines ? lines * costs_.line : 0) +
           (level == Level::kOff ? 0 : calls * call);
  }
  // Recent cost of the code, as far as it can be saved.
  double past_cost(std::uint32_t code) const noexcept {
    const Counts& counts = counts_[code];
    const Heat& heat = heats_[code];
    return can_fall(heat) ? cost(heat.level, counts.past_lines, counts.past_calls) : 0;
  }
  // Moves the new counts to the past. Returns what the new events cost.
  double take_in(std::uint64_t cpu_ns) noexcept {
    double spent = 0;
    // Code that is not recorded, too, where it gives events.
    double events = std::exchange(counts_[0], {}).calls;
    window_ns_ = window_ns_ / 2 + static_cast<double>(cpu_ns);
    for (std::uint32_t code = 1; code < counts_.size(); ++code) {
      Counts& counts = counts_[code];
      const bool is_new = counts.lines != 0 || counts.calls != 0;
      if (!is_new && counts.past_lines == 0 && counts.past_calls == 0) continue;
      const auto lines = static_cast<float>(counts.lines);
      const auto calls = static_cast<float>(counts.calls);
      if (can_fall(heats_[code])) spent += cost(Level::kLines, lines, calls);
      counts.past_lines = counts.past_lines < 1 ? lines : counts.past_lines / 2 + lines;
      counts.past_calls = counts.past_calls < 1 ? calls : counts.past_calls / 2 + calls;
      counts.lines = counts.calls = 0;
      events += lines + calls;
      Heat& heat = heats_[code];
      if (heat.on_trial) {
        heat.trial_lines += lines;
        heat.trial_calls += calls;
      }
    }
    new_floor_ns_ = events * kFloorNs;
    floor_ns_ = floor_ns_ / 2 + new_floor_ns_;
    if (trials_ > 0) {
      for (const std::uint32_t code : lowered_) {
        Heat& heat = heats_[code];
        if (!heat.on_trial) continue;
        heat.trial_cpu_ns += static_cast<double>(cpu_ns);
        heat.trial_spent_ns += spent;
      }
    }
    return spent;
  }
  // Returns whether code on trial alone costs too much for code that must not rest.
  bool judge_trials(std::uint64_t now_ns) noexcept {
    if (trials_ == 0) return false;
    bool too_hot = false;
    for (const std::uint32_t code : lowered_) {
      Heat& heat = heats_[code];
      if (!heat.on_trial) continue;
      const double room = heat.trial_cpu_ns * share_ * kTarget;
      Level level = heat.level;
      const bool told = heat.trial_lines + heat.trial_calls >= kFewest;
      const double floor = (heat.trial_lines + heat.trial_calls) * kFloorNs;
      too_hot = too_hot || (told && floor > heat.trial_cpu_ns * share_ * kRestShare);
      while (told && level > lowest_ && cost(level, heat.trial_lines, heat.trial_calls) > room) {
        level = below(level);
      }
      if (level == heat.wanted && now_ns < heat.next_ns) continue;
      // With all others it must fit, too: code that is up must not push down other code.
      if (level == heat.wanted && heat.trial_spent_ns > heat.trial_cpu_ns * share_) {
        level = heat.stated;
      }
      if (level == heat.wanted) {
        heat.risen_ns = now_ns;
      } else {
        put_off(heat);
      }
      heat.on_trial = false;
      --trials_;
      set(code, level);
    }
    std::erase_if(lowered_, [this](std::uint32_t code) {
      return heats_[code].level == heats_[code].wanted && !heats_[code].on_trial;
    });
    return too_hot;
  }
  // Later all code is tried as the filter says.
  void begin_rest() noexcept {
    if (now_ns_ - woke_ns_ > kLongNs) rest_failures_ = 0;
    rested_ns_ = now_ns_ + (kWaitNs << rest_failures_);
    rest_failures_ = std::min(rest_failures_ + 1, kMostFailures);
    rests_ = true;
    raise_all();
  }
  void lower() noexcept {
    double sum = 0;
    hottest_.clear();
    for (std::uint32_t code = 1; code < counts_.size(); ++code) {
      const double spent = past_cost(code);
      if (spent <= 0) continue;
      sum += spent;
      hottest_.push_back(code);
    }
    const auto cooler = [this](std::uint32_t a, std::uint32_t b) {
      return past_cost(a) < past_cost(b);
    };
    std::ranges::make_heap(hottest_, cooler);
    const double target = window_ns_ * share_ * kTarget;
    while (sum > target && !hottest_.empty()) {
      std::ranges::pop_heap(hottest_, cooler);
      const std::uint32_t code = hottest_.back();
      Heat& heat = heats_[code];
      const bool was_lowered = heat.level != heat.wanted || heat.on_trial;
      const Counts& counts = counts_[code];
      const double before = past_cost(code);
      Level level = below(heat.level);
      // The stack alone costs nearly as much as calls: skip it if that does not help.
      const double rest = sum - before;
      while (level > lowest_ && rest < target &&
             rest + cost(level, counts.past_lines, counts.past_calls) > target) {
        level = below(level);
      }
      put_off(heat);
      if (heat.on_trial) --trials_;
      heat.on_trial = false;
      set(code, level);
      if (!was_lowered) lowered_.push_back(code);
      sum = rest + past_cost(code);
      if (past_cost(code) > 0) {
        std::ranges::push_heap(hottest_, cooler);
      } else {
        hottest_.pop_back();
      }
    }
  }
  void begin_trials(std::uint64_t now_ns) noexcept {
    for (const std::uint32_t code : lowered_) {
      if (trials_ >= kMostTrials) return;
      Heat& heat = heats_[code];
      if (heat.on_trial || heat.next_ns > now_ns) continue;
      heat.on_trial = true;
      heat.trial_cpu_ns = heat.trial_lines = heat.trial_calls = heat.trial_spent_ns = 0;
      heat.next_ns = now_ns + kTrialNs;
      ++trials_;
      set(code, heat.wanted);
    }
  }
  // Sets a level in this review's changes; states it in the record unless it is only a trial's.
  void set(std::uint32_t code, Level level) noexcept {
    Heat& heat = heats_[code];
    if (heat.level == level && heat.stated == level) return;
    heat.level = level;
    const bool lasting = !heat.on_trial && heat.stated != level;
    if (lasting) heat.stated = level;
    Counts& counts = counts_[code];
    if (level < Level::kLines) counts.past_lines = 0;
    if (level == Level::kOff) counts.past_calls = 0;
    const auto known = std::ranges::find(changes_, code, &LevelChange::code);
    if (known == changes_.end()) {
      changes_.push_back({code, level, lasting});
    } else {
      *known = {code, level, lasting || known->lasting};
    }
  }
  void put_off(Heat& heat) noexcept {
    if (heat.level == heat.wanted && !heat.on_trial && now_ns_ - heat.risen_ns > kLongNs) {
      heat.failures = 0;
    }
    heat.next_ns = now_ns_ + (kWaitNs << heat.failures);
    heat.failures = static_cast<std::uint8_t>(std::min(heat.failures + 1, kMostFailures));
  }

  double share_ = 0;
  EventCosts costs_;
  Level lowest_ = Level::kOff;
  double saved_ns_ = 0;
  double window_ns_ = 0;      // CPU time of past_lines and past_calls
  double floor_ns_ = 0;       // cost of all events in it
  double new_floor_ns_ = 0;   // of those since the last review
  double rest_saved_ns_ = 0;  // as saved_ns_, of kRestShare budgets and the cost of all events
  bool rests_ = false;
  int rest_failures_ = 0;        // rests in a row
  std::uint64_t rested_ns_ = 0;  // when the rest ends
  std::uint64_t woke_ns_ = 0;    // when the last one ended
  std::uint64_t now_ns_ = 0;
  std::uint32_t trials_ = 0;
  std::vector<Counts> counts_ = std::vector<Counts>(1);  // by code id; 0 is no code
  std::vector<Heat> heats_ = std::vector<Heat>(1);
  std::vector<std::uint32_t> lowered_;  // code on trial too
  std::vector<std::uint32_t> hottest_;  // a heap
  std::vector<LevelChange> changes_;
};

}  // namespace oddrank::trace

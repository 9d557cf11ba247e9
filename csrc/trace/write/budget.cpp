// Adds up what events cost, lowers the hottest code objects and tries them again later.
#include "trace/write/budget.hpp"

#include <algorithm>
#include <exception>

namespace oddrank::trace {
namespace {

// Events between two reviews: about 0.2 ms of recording.
constexpr std::uint32_t kPause = 4096;
constexpr std::uint32_t kPauseIfLowered = 1024;
constexpr std::uint32_t kPauseInTrial = 256;
// What recording may save up: the budget of so much CPU time.
constexpr double kSavedNs = 1e9;
// What is left after lowering, as a share of the budget: the rest pays for trials.
constexpr double kTarget = 0.5;
constexpr std::uint64_t kTrialNs = 1'000'000'000;
// A trial does not fail before so many events.
constexpr double kFewest = 256;
constexpr std::uint64_t kWaitNs = 1'000'000'000;
constexpr int kMostFailures = 4;  // a lowered code object waits up to 2^4 s for its next trial
// Code that has been at its level for so long begins with the shortest wait again.
constexpr std::uint64_t kLongNs = 60'000'000'000;
constexpr std::uint32_t kMostTrials = 4;
// Cost of the begin or end of a call that only moves the stack.
constexpr double kWhereShare = 0.8;

Level below(Level level) noexcept { return static_cast<Level>(static_cast<int>(level) - 1); }

}  // namespace

void Budget::start(double share, EventCosts costs) noexcept {
  share_ = share;
  costs_ = costs;
  saved_ns_ = share * kSavedNs;
}

std::span<const LevelChange> Budget::raise_all() noexcept {
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

void Budget::clear() noexcept {
  counts_.resize(1);
  heats_.resize(1);
  lowered_.clear();
  trials_ = 0;
  window_ns_ = 0;
  saved_ns_ = share_ * kSavedNs;
}

bool Budget::add(std::uint32_t code, Level wanted) noexcept {
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

std::uint32_t Budget::pause() const noexcept {
  const std::uint32_t pause = trials_ > 0        ? kPauseInTrial
                              : lowered_.empty() ? kPause
                                                 : kPauseIfLowered;
  // A review looks at all code objects: this many events cost ten times as much.
  return std::max(pause, static_cast<std::uint32_t>(counts_.size() / 4));
}

double Budget::cost(Level level, double lines, double calls) const noexcept {
  const double call = level == Level::kWhere ? costs_.call * kWhereShare : costs_.call;
  return (level == Level::kLines ? lines * costs_.line : 0) +
         (level == Level::kOff ? 0 : calls * call);
}

double Budget::past_cost(std::uint32_t code) const noexcept {
  const Counts& counts = counts_[code];
  const Heat& heat = heats_[code];
  return can_fall(heat) ? cost(heat.level, counts.past_lines, counts.past_calls) : 0;
}

// Moves the new counts to the past. Returns what the new events cost.
double Budget::take_in(std::uint64_t cpu_ns) noexcept {
  double spent = 0;
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
    Heat& heat = heats_[code];
    if (heat.on_trial) {
      heat.trial_lines += lines;
      heat.trial_calls += calls;
    }
  }
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

// Sets a level in this review's changes; states it in the record unless it is only a trial's.
void Budget::set(std::uint32_t code, Level level) noexcept {
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

void Budget::put_off(Heat& heat) noexcept {
  if (heat.level == heat.wanted && !heat.on_trial && now_ns_ - heat.risen_ns > kLongNs) {
    heat.failures = 0;
  }
  heat.next_ns = now_ns_ + (kWaitNs << heat.failures);
  heat.failures = static_cast<std::uint8_t>(std::min(heat.failures + 1, kMostFailures));
}

void Budget::judge_trials(std::uint64_t now_ns) noexcept {
  if (trials_ == 0) return;
  for (const std::uint32_t code : lowered_) {
    Heat& heat = heats_[code];
    if (!heat.on_trial) continue;
    const double room = heat.trial_cpu_ns * share_ * kTarget;
    Level level = heat.level;
    const bool told = heat.trial_lines + heat.trial_calls >= kFewest;
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
}

void Budget::lower() noexcept {
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

void Budget::begin_trials(std::uint64_t now_ns) noexcept {
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

std::span<const LevelChange> Budget::review(std::uint64_t cpu_ns, std::uint64_t now_ns) noexcept {
  changes_.clear();
  if (share_ <= 0) return changes_;
  now_ns_ = now_ns;
  const double spent = take_in(cpu_ns);
  const double most = share_ * kSavedNs;
  saved_ns_ = std::min(saved_ns_ + static_cast<double>(cpu_ns) * share_ - spent, most);
  judge_trials(now_ns);
  if (saved_ns_ < 0) {
    lower();
    saved_ns_ = std::max(saved_ns_, -most);
  } else if (saved_ns_ > most / 2) {
    begin_trials(now_ns);
  }
  return changes_;
}

}  // namespace oddrank::trace

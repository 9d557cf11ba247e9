// The checks of each iteration, in the order of add(). Limits are at the top.
#include "metrics/verdicts.hpp"

#include <cmath>
#include <map>

namespace oddrank::metrics {
namespace {

// The least that matters. one, few, step, drift, sign
constexpr Limits kLossLimits{0.4, 0.15, 0.1, 0.15, 1};
constexpr Limits kGradLimits{0, 1.3, 1.3, 1.6, 1};
constexpr Limits kSpeedLimits{0, 0.03, 0.03, 0.1, -1};

constexpr std::string_view kOfOneGpu = "TFLOP/s";
constexpr double kLeastSpell = 30;    // seconds of rows that the clock alone measures
constexpr std::size_t kWarmUp = 5;    // rows after a start whose speed is not judged
constexpr std::size_t kRecent = 256;  // rows that make the usual pace, and whose pauses count
constexpr std::size_t kLeastGaps = 16;
constexpr double kStall = 300;           // seconds; shorter pauses are no stall
constexpr double kStallGaps = 10;        // usual iterations; shorter pauses are no stall either
constexpr double kSignedStall = 1800;    // the same beside a checkpoint or an evaluation
constexpr double kLonger = 3;            // times the longest pause of that kind before
constexpr double kRound = 50;            // checkpoints are made at multiples of it
constexpr std::size_t kBehindPause = 8;  // rows that a checkpoint may slow down
constexpr double kSkipStreak = 8;        // iterations skipped one after another
constexpr double kSkipStart = 40;        // at the start a loss scale halves from 2^32 down
constexpr std::size_t kNanGrads = 3;
constexpr double kZeros = 3;        // rows one after another
constexpr double kAboveZero = 0.1;  // a loss that falls to 0 from less may have been learned
constexpr double kLeastPause = 5;   // seconds; clocks that show whole ones make shorter pauses up
constexpr std::size_t kSlowLines = 10;  // stragglers' lines
constexpr double kClearlySlow = 0.1;
constexpr std::size_t kLast = 16;     // rows that give the present state
constexpr double kLeastClock = 60;    // seconds of rows by the clock, which may show whole seconds
constexpr std::size_t kRepeated = 2;  // pauses that are expected to come again

}  // namespace

Verdicts::Verdicts()
    : loss_{Series(kLossLimits), "loss-spike"},
      grad_{Series(kGradLimits), "grad-growth"},
      speed_{Series(kSpeedLimits), "slower"} {}

void Verdicts::add(const Step& step) {
  const Row& row = step.row;
  if (row.kind == Row::Kind::straggler) return judge_stragglers(row);
  silent_ = false;
  ++figures_.rows;
  const double at = row[kIteration];
  const double gap = row[kTime] - last_step_.row[kTime];  // NaN where a time is not known
  const double iterations = at - step.before;
  if (step.restarted) judge_restart(step, gap);
  if (!step.restarted && iterations > 0 && !(iterations >= interval_)) interval_ = iterations;
  judge_numbers(step);
  if (row.has(kLoss) || row.loss_is_nan || row[kNan] > 0) loss_.see(figures_.rows);
  if (row.has(kGradNorm) || row.grad_is_nan) grad_.see(figures_.rows);
  if (row[kGradNorm] > 0) judge(grad_, row[kGradNorm], row, at);
  if (row.has(kLoss) && row[kLoss] != 0) judge(loss_, row[kLoss], row, at);
  if (!step.restarted) {
    Pause pause = judge_pause(step, gap);
    judge_speed(step, gap);
    spend(gap >= 0 ? gap : row[kStepSeconds] * (iterations > 0 ? iterations : 1), pause);
    // The first row of a run has its warm-up in it: it counts only while it is the only one.
    if (run_rows_ == 1) recent_.clear();
    // Long rows one after another are no pauses: the training has become slow.
    const bool is_long = pause.seconds > 0;
    if (is_long && !recent_.empty() && recent_.back().is_long) pause = {};
    const Speed speed = speed_of(row, iterations, gap);
    push_bounded(recent_, {iterations, row[kStepSeconds], gap, pause, is_long, speed}, kRecent);
    // Compares the first rows after a restart with those right before it.
    if (run_rows_ == kLast && figures().speed_unit == before_.unit) {
      const double share = figures().speed / before_.value;
      figures_.speed_kept = std::min(figures_.speed_kept, share);
      if (std::abs(share - 1) < kSpeedLimits.few && speed_.open == nullptr) speed_ = known_;
    }
  }
  ++run_rows_;
  if (row.has(kTime) && std::isnan(figures_.first_time)) figures_.first_time = row[kTime];
  remember(row);
  last_step_ = step;
}

// Adds the time of a row to its kind of work.
void Verdicts::spend(double seconds, const Pause& pause) {
  Spent& spent = figures_.spent;
  if (!(seconds > 0)) return;
  spent.all += seconds;
  (pause.is_stall ? spent.stalls : spent.pauses) += pause.seconds;
  if (run_rows_ < kWarmUp) {
    starting_ += seconds - pause.seconds;
    ++starting_rows_;
  }
  if (usual_gap_ > 0 && starting_rows_ > 0 && gaps_.size() >= kLeastGaps) {
    spent.start += std::max(0.0, starting_ - starting_rows_ * usual_gap_);
    starting_ = starting_rows_ = 0;
  }
  Suspect* const slower = speed_.open;
  if (slower == nullptr) return;
  const double lost = (seconds - pause.seconds) * std::clamp(slower->share, 0.0, 1.0);
  // A change is seen late: its first rows count, too, half of them if it came slowly.
  const bool is_new = std::isnan(slower->seconds);
  const double rows = is_new ? slower->count / (slower->shape == "drift" ? 2 : 1) : 1;
  slower->seconds = (is_new ? 0 : slower->seconds) + lost * rows;
  spent.slow += lost * rows;
}

// Keeps the newest number of each column.
void Verdicts::remember(const Row& row) {
  Row& last = figures_.last;
  for (std::size_t column = 0; column < kColumns; ++column) {
    if (row.has(static_cast<Column>(column))) last.values[column] = row.values[column];
  }
  const bool loss_is_nan = row.loss_is_nan || (row[kNan] > 0 && !row.has(kLoss));
  if (loss_is_nan || row.has(kLoss)) last.loss_is_nan = loss_is_nan;
  if (row.grad_is_nan || row.has(kGradNorm)) last.grad_is_nan = row.grad_is_nan;
  if (last.loss_is_nan) last[kLoss] = kUnknown;
  if (last.grad_is_nan) last[kGradNorm] = kUnknown;
}

// Returns null if there are too many.
Suspect* Verdicts::report(std::string_view kind, const Row& row) {
  if (suspects_.size() == kMostSuspects) {
    ++figures_.left_out;
    return nullptr;
  }
  Suspect& made = suspects_.emplace_back();
  made.kind = kind;
  made.first = made.fired = made.at = row[kIteration];
  made.line = row.line;
  made.file = row.file;
  return &made;
}

// Adds a value. The suspect grows with the series' change.
void Verdicts::judge(Watched& watched, double value, const Row& row, double first, bool briefly) {
  watched.see(figures_.rows);
  const Series::Event event = watched.series.add(value, row[kIteration], first, briefly);
  if (event == Series::Event::none) return;
  const Change& change = watched.series.change();
  if (event == Series::Event::began) {
    const bool rises = watched.kind == "loss-spike" && change.shape != "spike";
    watched.open = report(rises ? "loss-rise" : watched.kind, row);
  }
  if (watched.open == nullptr) return;
  static_cast<Change&>(*watched.open) = change;
  watched.open->share = std::abs(change.value / change.level - 1);
  if (event == Series::Event::over) watched.open = nullptr;
}

void Verdicts::judge_speed(const Step& step, double gap) {
  const Row& row = step.row;
  const bool pause = step.checkpoint || step.evaluation || is_round(step);
  since_pause_ = pause ? 0 : since_pause_ + 1;
  const auto differs = [&](Column column) {
    return row[column] > 0 && last_step_.row[column] > 0 && row[column] != last_step_.row[column];
  };
  if (differs(kBatch) || differs(kSequence)) {  // other work: other times
    speed_.reset();
    grad_.reset();
    recent_.clear();
  }
  const Speed now = speed_of(row, row[kIteration] - step.before, gap);
  if (!(now.value > 0) || run_rows_ < kWarmUp) return;
  if (unit_.empty()) unit_ = now.unit;
  if (now.unit != unit_) return;
  // Behind a checkpoint, which may be written in the background, a few rows are slow.
  const bool briefly = since_pause_ >= kBehindPause;
  if (!now.unit.ends_with("clock")) {
    return judge(speed_, now.value, row, row[kIteration], briefly);
  }
  // A single long row is a pause. The clock may show whole seconds only, so rows are added up.
  const bool is_long = gap > 5 * usual_gap_;
  const bool paused = step.checkpoint || step.evaluation || (is_long && !was_paused_);
  was_paused_ = is_long;
  if (paused) return;
  if (spell_.seconds == 0) spell_.first = row[kIteration];
  spell_.iterations += now.value * gap;
  spell_.seconds += gap;
  if (spell_.seconds < kLeastSpell) return;
  const Spell whole = std::exchange(spell_, {});
  judge(speed_, whole.iterations / whole.seconds, row, whole.first, briefly);
}

// Returns whether a checkpoint may have been made before this iteration, by its number.
bool Verdicts::is_round(const Step& step) const {
  const double every = interval_ > 1 ? 5 * interval_ : kRound;
  return std::fmod(step.before, every) == 0 || std::fmod(step.row[kIteration], every) == 0 ||
         std::fmod(step.row[kIteration] - 1, every) == 0;
}

// Returns how long a pause before this iteration may be.
double Verdicts::pause_limit(const Step& step) const {
  const double plain = std::max({kStall, kStallGaps * usual_gap_, kLonger * longest_plain_});
  const bool told = step.checkpoint || step.evaluation;
  if (!told && !is_round(step)) return plain;
  // The first evaluation takes as long as it takes.
  if (told && longest_signed_ == 0) return std::numeric_limits<double>::infinity();
  return std::max({plain, kSignedStall, kLonger * longest_signed_});
}

// Returns how much longer than usual the time before this row is.
Pause Verdicts::judge_pause(const Step& step, double gap) {
  const Row& row = step.row;
  const double iterations = row[kIteration] - step.before;
  if (!(iterations > 0)) return {};
  // Rows are missing: their time is unknown, too.
  const bool whole = !(iterations > 1.5 * interval_);
  double seconds = gap;
  if (!(gap >= 0)) seconds = whole ? row[kStepSeconds] * iterations : kUnknown;
  if (!(seconds >= 0)) return {};
  const double usual = usual_gap_ * iterations / interval_;
  const double beyond = seconds - usual;
  const bool quiet = !step.checkpoint && !step.evaluation;
  Pause pause;
  if (beyond > std::max(usual, kLeastPause)) pause.seconds = beyond;
  if (gaps_.size() >= kLeastGaps && run_rows_ >= kWarmUp) {
    if (whole && beyond > pause_limit(step)) {
      pause.is_stall = true;
      if (Suspect* const made = report("stall", row)) {
        made->first = step.before;
        made->until = row[kIteration];
        made->seconds = beyond;
        made->level = usual;
        made->known = static_cast<double>(gaps_.size());
      }
    }
    if (beyond > 5 * usual_gap_) {
      double& longest = quiet ? longest_plain_ : longest_signed_;
      longest = std::max(longest, beyond);
    }
  }
  push_bounded(gaps_, seconds * (interval_ > 0 ? interval_ / iterations : 1), kRecent);
  if (gaps_.size() < 32 || figures_.rows % 32 == 0)
    usual_gap_ = median_of({gaps_.begin(), gaps_.end()});
  return pause;
}

void Verdicts::silence(double seconds) {
  const Row& last = last_step_.row;
  if (silent_ || gaps_.size() < kLeastGaps || last[kIteration] >= last[kTotal]) return;
  Step next;
  next.before = last[kIteration];
  next.row[kIteration] = last[kIteration] + interval_;
  next.checkpoint = longest_signed_ > 0;  // it may be one: no sign yet
  if (seconds - usual_gap_ <= pause_limit(next)) return;
  silent_ = true;
  if (Suspect* const made = report("stall", last)) {
    made->seconds = seconds;
    made->level = usual_gap_;
    made->known = static_cast<double>(gaps_.size());
  }
}

// Counts a row. bad: iterations of it that are bad; good: the streak is over. Reports a streak that
// is long enough. Returns whether it had been one.
bool Verdicts::count(Streak& streak, double bad, bool good, double needed, const Row& row) {
  if (good) {
    const bool was = streak.open != nullptr;
    if (was) streak.open->until = row[kIteration];
    streak = {streak.kind};
    return was;
  }
  if (!(bad > 0)) return false;
  if (streak.count == 0) streak.first = row[kIteration];
  streak.count += bad;
  if (streak.open == nullptr && streak.count >= needed) streak.open = report(streak.kind, row);
  if (streak.open != nullptr) {
    streak.open->first = streak.first;
    streak.open->at = row[kIteration];
    streak.open->count = streak.count;
  }
  return false;
}

// NaN, losses of 0, skipped iterations, and ranks that disagree.
void Verdicts::judge_numbers(const Step& step) {
  const Row& row = step.row;
  const bool nan = row.loss_is_nan || row[kNan] > 0;
  count(nan_loss_, nan ? std::max(1.0, row[kNan] > 0 ? row[kNan] : 0.0) : 0, !nan && row.has(kLoss),
        1, row);
  // A loss that falls to 0 from little may have been learned.
  if (row.has(kLoss)) {
    const bool odd = above_zero_ >= kAboveZero && !zero_is_usual_;
    const double zeros = zero_loss_.count;
    const bool was = count(zero_loss_, 1, row[kLoss] != 0,
                           odd ? kZeros : std::numeric_limits<double>::infinity(), row);
    if (zero_loss_.open != nullptr) zero_loss_.open->level = above_zero_;
    if (row[kLoss] != 0) {
      zero_is_usual_ |= zeros > 0 && !was;
      above_zero_ = row[kLoss];
    }
  }
  // The first steps with a loss scale may overflow.
  count(nan_grad_, row.grad_is_nan ? 1 : 0, row.has(kGradNorm), had_grad_ ? kNanGrads : kSkipStart,
        row);
  had_grad_ |= row.has(kGradNorm);
  const double iterations = std::isnan(step.before) ? 1 : row[kIteration] - step.before;
  const bool all = row[kSkipped] > 0 && row[kSkipped] >= iterations;
  had_step_ |= row.has(kSkipped) && !all;
  count(skipped_, all ? row[kSkipped] : 0, !all, had_step_ ? kSkipStreak : kSkipStart, row);
  if (skipped_.open != nullptr) skipped_.open->value = row[kLossScale];
  if (step.disagreement.writers == 0) return;
  if (disagreement_ == nullptr) {
    disagreement_ = report("disagree", row);
    if (disagreement_ == nullptr) return;
    disagreement_->value = step.disagreement.other;
    disagreement_->level = step.disagreement.loss;
    disagreement_->known = static_cast<double>(step.disagreement.writers);
    disagreement_->ranks = step.disagreement.ranks;
  }
  ++disagreement_->count;
}

// A rank is slow if most of the last lines name it, each by a clear share.
void Verdicts::judge_stragglers(const Row& row) {
  push_bounded(slow_, {static_cast<int>(row[kSlowRank]), row[kSlowShare]}, 2 * kSlowLines);
  std::map<int, std::vector<double>> by_rank;
  for (const auto& [rank, share] : slow_) by_rank[rank].push_back(share);
  for (auto& [rank, shares] : by_rank) {
    if (shares.size() < kSlowLines || shares.size() * 5 < slow_.size() * 4) continue;
    if (std::find(named_.begin(), named_.end(), rank) != named_.end()) continue;
    const double share = median_of(shares);
    if (share < kClearlySlow) continue;
    named_.push_back(rank);
    Suspect* const made = report("straggler", row);
    if (made == nullptr) return;
    made->ranks = {rank};
    made->share = share / (1 + share);
    made->count = static_cast<double>(shares.size());
    made->known = static_cast<double>(slow_.size());
  }
}

void Verdicts::judge_restart(const Step& step, double gap) {
  ++figures_.restarts;
  const double one = interval_ > 0 ? usual_gap_ / interval_ : kUnknown;
  const double down = gap > 0 ? std::max(0.0, gap - (std::isnan(usual_gap_) ? 0 : usual_gap_)) : 0;
  const double again = one > 0 ? one * step.lost : 0;
  figures_.lost_iterations += step.lost;
  figures_.spent.all += gap > 0 ? gap : 0;
  figures_.spent.down += down;
  figures_.spent.again += again;
  if (Suspect* const made = report("restart", step.row)) {
    made->first = step.before;
    made->at = step.row[kIteration];
    made->count = step.lost;
    made->seconds = again + down;
    made->value = down;
  }
  const std::size_t rows = std::exchange(run_rows_, 0);
  // Compares repeated work with the rows before it.
  for (Watched* each : {&loss_, &grad_}) {
    each->series.rewind(step.row[kIteration]);
    each->open = nullptr;
  }
  if (speed_of(step.row, 1, kUnknown).unit == kOfOneGpu) return;
  if (rows > kLast) {
    const Figures now = figures();
    before_ = {now.speed_unit, now.speed};
    known_ = speed_;
  }
  speed_.reset();
  spell_ = {};
  unit_ = {};
}

Figures Verdicts::figures() const {
  Figures made = figures_;
  made.judged = {loss_.series.judged(), grad_.series.judged(), speed_.series.judged()};
  made.gone = {loss_.gone(made.rows), grad_.gone(made.rows), speed_.gone(made.rows)};
  made.speed_unit = unit_;
  if (unit_.empty() && !recent_.empty()) made.speed_unit = recent_.back().speed.unit;
  // The median of the last rows that have a number.
  const auto median = [this](auto number) {
    std::vector<double> numbers;
    for (auto row = recent_.rbegin(); row != recent_.rend() && numbers.size() < kLast; ++row) {
      if (number(*row) > 0) numbers.push_back(number(*row));
    }
    return numbers.empty() ? kUnknown : median_of(numbers);
  };
  made.pace = median([](const Entry& row) { return row.stated; });
  if (std::isnan(made.pace)) made.pace = pace_by_clock();
  made.speed = median([&made](const Entry& row) {
    return row.speed.unit == made.speed_unit ? row.speed.value : kUnknown;
  });
  if (made.speed_unit.ends_with("clock")) made.speed = 1 / pace_by_clock();
  double iterations = 0, seconds = 0;
  std::size_t count = 0;
  for (const Entry& row : recent_) {
    if (row.iterations > 0) iterations += row.iterations;
    if (row.pause.is_stall || !(row.pause.seconds > 0)) continue;
    seconds += row.pause.seconds;
    ++count;
  }
  if (count >= kRepeated) made.pauses = seconds / iterations;
  return made;
}

double Verdicts::pace_by_clock() const {
  double iterations = 0, seconds = 0;
  std::size_t count = 0;
  for (auto row = recent_.rbegin(); row != recent_.rend(); ++row) {
    if (!(row->gap >= 0) || !(row->iterations > 0) || row->pause.seconds > 0) continue;
    iterations += row->iterations;
    seconds += row->gap;
    if (++count >= kLast && seconds >= kLeastClock) break;
  }
  return seconds > 0 ? seconds / iterations : kUnknown;
}

Speed speed_of(const Row& row, double iterations, double gap) {
  if (row[kTflops] > 0) return {kOfOneGpu, row[kTflops]};
  if (row[kTokensPerSecond] > 0) return {"tokens/s", row[kTokensPerSecond]};
  if (row[kSamplesPerSecond] > 0) return {"samples/s", row[kSamplesPerSecond]};
  if (row[kStepSeconds] > 0) {
    if (row[kBatch] > 0) return {"samples/s", row[kBatch] / row[kStepSeconds]};
    return {"iterations/s", 1 / row[kStepSeconds]};
  }
  if (gap > 0 && iterations > 0) return {"iterations/s by the clock", iterations / gap};
  return {};
}

}  // namespace oddrank::metrics

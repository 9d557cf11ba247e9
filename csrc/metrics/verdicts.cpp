// What is asked of each iteration, in the order of add(). Limits are at the top.
#include "metrics/verdicts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace oddrank::metrics {
namespace {

//                          floor  effect rank rows back tail window
constexpr Rule kLossRule{0.03, 0.15, 1, 2, 2, 4, 31};
constexpr Rule kGradRule{0.3, 1.1, 2, 3, 2, 2, 31};
constexpr Rule kSpeedRule{0.007, 0.03, 2, 3, 3, 2, 128};
constexpr Rule kSpreadRule{0.05, 0.18, 2, 16, 4, 2, 128};

constexpr double kSupported = 6;      // evidence for a spike beside grown gradients
constexpr double kLeastSpell = 200;   // seconds of rows that the clock alone measures
constexpr std::size_t kWarmUp = 5;    // rows after a start whose speed is not judged
constexpr std::size_t kRecent = 256;  // rows that make the usual pace
constexpr std::size_t kLeastGaps = 16;
constexpr double kStall = 300;                // seconds; shorter pauses are no stall
constexpr double kStallGaps = 10;             // nor are those of fewer usual iterations
constexpr double kSignedStall = 1800;         // the same beside a checkpoint or an evaluation
constexpr double kLonger = 3;                 // times the longest pause of that kind before
constexpr double kRound = 50;                 // checkpoints are made at multiples of it
constexpr std::size_t kBehindPause = 8;       // rows that a checkpoint may slow down
constexpr std::size_t kBehindPauseRows = 16;  // a drop that begins there needs so many
constexpr double kSkipStreak = 8;             // iterations skipped one after another
constexpr double kSkipStart = 40;             // at the start a loss scale halves from 2^32 down
constexpr std::size_t kNanGrads = 3;
constexpr double kZeros = 3;        // rows one after another
constexpr double kAboveZero = 0.1;  // a loss that falls to 0 from less may have been learned
constexpr double kLeastPause = 5;   // seconds; clocks that show whole ones make shorter pauses up
constexpr std::size_t kSlowLines = 10;  // stragglers' lines
constexpr double kClearlySlow = 0.1;

constexpr std::array<std::string_view, 12> kKinds{
    "loss-spike", "grad-growth", "slower",   "stall",     "nan-loss", "nan-grad",
    "zero-loss",  "skipped",     "disagree", "straggler", "spread",   "restart"};

double median_of_ring(const std::deque<double>& values) {
  std::vector<double> copy(values.begin(), values.end());
  return median_of(copy);
}

}  // namespace

std::string_view name_of(Suspect::Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

Verdicts::Verdicts()
    : loss_(kLossRule, Suspect::Kind::loss_spike),
      grad_(kGradRule, Suspect::Kind::grad_growth),
      speed_(kSpeedRule, Suspect::Kind::slower),
      spread_(kSpreadRule, Suspect::Kind::spread) {
  for (const std::size_t width : {16U, 64U, 256U}) shifts_.emplace_back(width, kSpeedRule.effect);
}

void Verdicts::add(const Step& step) {
  const Row& row = step.row;
  if (row.kind == Row::Kind::straggler) return judge_stragglers(row);
  silent_ = false;
  ++figures_.rows;
  const double gap = row[kTime] - last_step_.row[kTime];  // NaN where a time is not known
  const double iterations = row[kIteration] - step.before;
  if (step.restarted) {
    judge_restart(step, gap);
  } else if (iterations > 0 && !(iterations >= interval_)) {
    interval_ = iterations;
  }
  judge_numbers(step);
  const bool grad_away = grad_.excursion.is_away();
  if (row[kGradNorm] > 0) judge_series(grad_, std::log(row[kGradNorm]), row, 0);
  if (row[kLoss] > 0) {
    // One row, and less evidence, is enough where the gradients say the same.
    const bool supported = grad_away || grad_.excursion.is_away();
    const double evidence = supported ? kSupported : Excursion::kEvidence;
    judge_series(loss_, std::log(row[kLoss]), row, supported ? 1 : 0, evidence);
  }
  if (!step.restarted) {
    const Pause pause = judge_pause(step, gap);
    judge_speed(step, gap);
    // The first row of a run has its warm-up in it: it counts only while it is the only one.
    if (run_rows_ == 1) recent_.reset();
    recent_.add(row, iterations, gap, pause);
  }
  if (row[kStepMin] > 0 && row[kStepMax] >= row[kStepMin] && run_rows_ >= kWarmUp) {
    judge_series(spread_, std::log(row[kStepMax] / row[kStepMin]), row, 0);
  }
  ++run_rows_;
  if (row.has(kTime)) {
    if (std::isnan(figures_.first_time)) figures_.first_time = row[kTime];
  }
  remember(row);
  last_step_ = step;
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

std::size_t Verdicts::report(Suspect::Kind kind, const Row& row) {
  if (suspects_.size() == kMostSuspects) {
    ++figures_.left_out;
    return kNone;
  }
  Suspect& made = suspects_.emplace_back();
  made.kind = kind;
  made.first = made.fired = made.at = row[kIteration];
  made.line = row.line;
  made.file = row.file;
  return suspects_.size() - 1;
}

// Takes a logarithm. The suspect grows with its excursion.
void Verdicts::judge_series(Series& series, double value, const Row& row, std::size_t rows,
                            double evidence) {
  Excursion& away = series.excursion;
  const double sign = series.kind == Suspect::Kind::slower ? -1 : 1;
  const Excursion::Event event = away.add(value, row[kIteration], rows, evidence);
  if (event == Excursion::Event::fired) {
    series.open = report(series.kind, row);
    if (series.open != kNone) suspects_[series.open].first = away.first();
  }
  if (series.open == kNone) return;
  Suspect& suspect = suspects_[series.open];
  if (event == Excursion::Event::recovered) suspect.until = away.recovered();
  if (event == Excursion::Event::recovered || !away.has_fired()) {
    series.open = kNone;
    return;
  }
  const bool lasts = series.kind == Suspect::Kind::slower || series.kind == Suspect::Kind::spread;
  const double size = lasts ? away.typical() : away.peak();
  suspect.level = std::exp(sign * away.level());
  suspect.value = std::exp(sign * (away.level() + size));
  suspect.share = sign < 0 ? 1 - std::exp(-size) : std::exp(size) - 1;
  suspect.at = lasts ? away.first() : away.peak_at();
  suspect.count = static_cast<double>(away.rows());
  suspect.known = static_cast<double>(std::min<std::uint64_t>(figures_.rows, 512));
}

void Verdicts::judge_speed(const Step& step, double gap) {
  const Row& row = step.row;
  const bool pause = step.checkpoint || step.evaluation || is_round(step);
  since_pause_ = pause ? 0 : since_pause_ + 1;
  const Speed now = speed_of(row, row[kIteration] - step.before, gap);
  const bool changed =
      (row[kBatch] > 0 && last_step_.row[kBatch] > 0 && row[kBatch] != last_step_.row[kBatch]) ||
      (row[kSequence] > 0 && last_step_.row[kSequence] > 0 &&
       row[kSequence] != last_step_.row[kSequence]);
  if (changed) {  // other work: other times
    speed_.excursion.reset();
    grad_.excursion.reset();
    spread_.excursion.reset();
    for (BlockShift& shift : shifts_) shift.reset();
    speed_.open = grad_.open = spread_.open = kNone;
    speeds_.clear();
    recent_.reset();
  }
  if (!(now.value > 0) || run_rows_ < kWarmUp) return;
  if (unit_.empty()) unit_ = now.unit;
  if (now.unit != unit_) return;
  double measured = now.value;
  if (now.unit.ends_with("clock")) {
    // Beside a pause the clock says nothing about the speed of an iteration. It may show whole
    // seconds only, so rows are added up until these no longer matter.
    const bool paused = step.checkpoint || step.evaluation || gap > 5 * usual_gap_;
    by_clock_ =
        paused ? Spell{} : Spell{by_clock_.iterations + now.value * gap, by_clock_.seconds + gap};
    if (by_clock_.seconds < kLeastSpell) return;
    measured = by_clock_.iterations / by_clock_.seconds;
    by_clock_ = {};
  }
  const double value = -std::log(measured);
  push_bounded(speeds_, value, kRecent);
  const std::size_t before = speed_.open;
  // Behind a checkpoint, which may be written in the background, rows are slow for a while.
  if (!speed_.excursion.is_away()) needed_ = since_pause_ < kBehindPause ? kBehindPauseRows : 0;
  judge_series(speed_, value, row, needed_);
  if (before != kNone && speed_.open == kNone && std::isnan(suspects_[before].until)) {
    open_shift_ = before;  // it lasts so long that it is the level now
    shift_level_ = -std::log(suspects_[before].level);
    shift_size_ = -std::log(1 - suspects_[before].share);
    for (BlockShift& shift : shifts_) shift.reset();
  }
  if (!speed_.excursion.is_away()) judge_shift(value, row);
}

// Shifts that the noise hides row by row, and the end of a drop that lasted.
void Verdicts::judge_shift(double value, const Row& row) {
  if (open_shift_ != kNone && speeds_.size() >= 16 && figures_.rows % 16 == 0) {
    std::vector<double> late(speeds_.end() - 16, speeds_.end());
    if (median_of(late) - shift_level_ < shift_size_ / 2) {
      suspects_[open_shift_].until = row[kIteration];
      open_shift_ = kNone;
    }
  }
  for (BlockShift& shift : shifts_) {
    if (!shift.add(value, row[kIteration]) || open_shift_ != kNone) continue;
    open_shift_ = report(Suspect::Kind::slower, row);
    for (BlockShift& each : shifts_) each.reset();
    if (open_shift_ == kNone) return;
    shift_level_ = shift.level();
    shift_size_ = shift.shift();
    Suspect& suspect = suspects_[open_shift_];
    suspect.first = suspect.at = shift.first();
    suspect.level = std::exp(-shift_level_);
    suspect.value = std::exp(-shift_level_ - shift_size_);
    suspect.share = 1 - std::exp(-shift_size_);
    suspect.count = 32;
    suspect.known = static_cast<double>(std::min<std::uint64_t>(figures_.rows, 512));
    return;
  }
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
      const std::size_t made = report(Suspect::Kind::stall, row);
      if (made != kNone) {
        Suspect& suspect = suspects_[made];
        suspect.first = step.before;
        suspect.until = row[kIteration];
        suspect.seconds = beyond;
        suspect.level = usual;
        suspect.known = static_cast<double>(gaps_.size());
      }
    }
    if (beyond > 5 * usual_gap_) {
      double& longest = quiet ? longest_plain_ : longest_signed_;
      longest = std::max(longest, beyond);
    }
  }
  push_bounded(gaps_, seconds * (interval_ > 0 ? interval_ / iterations : 1), kRecent);
  if (gaps_.size() < 32 || figures_.rows % 32 == 0) usual_gap_ = median_of_ring(gaps_);
  return pause;
}

void Verdicts::silence(double seconds) {
  const Row& last = last_step_.row;
  if (silent_ || gaps_.size() < kLeastGaps || last[kIteration] >= last[kTotal]) return;
  Step next;
  next.before = last[kIteration];
  next.row[kIteration] = last[kIteration] + interval_;
  next.checkpoint = longest_signed_ > 0;  // it may be one: no sign tells yet
  if (seconds - usual_gap_ <= pause_limit(next)) return;
  silent_ = true;
  if (const std::size_t made = report(Suspect::Kind::stall, last); made != kNone) {
    suspects_[made].seconds = seconds;
    suspects_[made].level = usual_gap_;
    suspects_[made].known = static_cast<double>(gaps_.size());
  }
}

// NaN, skipped iterations, and ranks that disagree.
void Verdicts::judge_numbers(const Step& step) {
  const Row& row = step.row;
  if (row.loss_is_nan || row[kNan] > 0) {
    if (open_nan_ == kNone) open_nan_ = report(Suspect::Kind::nan_loss, row);
    if (open_nan_ != kNone) suspects_[open_nan_].count += row[kNan] > 0 ? row[kNan] : 1;
  } else if (open_nan_ != kNone && row.has(kLoss)) {
    suspects_[open_nan_].until = row[kIteration];
    open_nan_ = kNone;
  }
  judge_zeros(row);
  if (row.grad_is_nan && nan_grads_++ == 0) first_nan_grad_ = row[kIteration];
  if (row.has(kGradNorm)) {
    if (open_nan_grad_ != kNone) suspects_[open_nan_grad_].until = row[kIteration];
    open_nan_grad_ = kNone;
    nan_grads_ = 0;
  }
  // The first steps with a loss scale may overflow.
  if (row.grad_is_nan && nan_grads_ == (had_grad_ ? kNanGrads : kSkipStart)) {
    open_nan_grad_ = report(Suspect::Kind::nan_grad, row);
    if (open_nan_grad_ != kNone) suspects_[open_nan_grad_].first = first_nan_grad_;
  }
  if (row.grad_is_nan && open_nan_grad_ != kNone) {
    suspects_[open_nan_grad_].count = nan_grads_;
    suspects_[open_nan_grad_].at = row[kIteration];
  }
  had_grad_ |= row.has(kGradNorm);
  const double iterations = std::isnan(step.before) ? 1 : row[kIteration] - step.before;
  const bool all = row[kSkipped] > 0 && row[kSkipped] >= iterations;
  skips_ = all ? skips_ + row[kSkipped] : 0;
  had_step_ |= row.has(kSkipped) && !all;
  if (!all && open_skip_ != kNone) {
    suspects_[open_skip_].until = row[kIteration];
    open_skip_ = kNone;
  }
  if (open_skip_ == kNone && skips_ >= (had_step_ ? kSkipStreak : kSkipStart)) {
    open_skip_ = report(Suspect::Kind::skipped, row);
    if (open_skip_ != kNone) suspects_[open_skip_].value = row[kLossScale];
  }
  if (open_skip_ != kNone) suspects_[open_skip_].count = skips_;
  if (!step.disagree) return;
  if (disagreement_ == kNone) {
    disagreement_ = report(Suspect::Kind::disagree, row);
    if (disagreement_ == kNone) return;
    suspects_[disagreement_].value = step.disagreement.other;
    suspects_[disagreement_].level = step.disagreement.loss;
    suspects_[disagreement_].known = static_cast<double>(step.disagreement.writers);
    suspects_[disagreement_].ranks = step.disagreement.ranks;
  }
  ++suspects_[disagreement_].count;
}

// A loss that is exactly 0 after it was not: nothing is learned any more.
void Verdicts::judge_zeros(const Row& row) {
  if (!row.has(kLoss)) return;
  if (row[kLoss] != 0) {
    if (open_zero_ != kNone) suspects_[open_zero_].until = row[kIteration];
    zero_is_usual_ |= zeros_ > 0 && open_zero_ == kNone;
    open_zero_ = kNone;
    zeros_ = 0;
    above_zero_ = row[kLoss];
    return;
  }
  if (zeros_++ == 0) first_zero_ = row[kIteration];
  if (zeros_ == kZeros && above_zero_ >= kAboveZero && !zero_is_usual_) {
    open_zero_ = report(Suspect::Kind::zero_loss, row);
    if (open_zero_ != kNone) {
      suspects_[open_zero_].first = first_zero_;
      suspects_[open_zero_].level = above_zero_;
    }
  }
  if (open_zero_ != kNone) suspects_[open_zero_].count = zeros_;
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
    const std::size_t made = report(Suspect::Kind::straggler, row);
    if (made == kNone) return;
    suspects_[made].ranks = {rank};
    suspects_[made].share = share / (1 + share);
    suspects_[made].count = static_cast<double>(shares.size());
    suspects_[made].known = static_cast<double>(slow_.size());
  }
}

void Verdicts::judge_restart(const Step& step, double gap) {
  ++figures_.restarts;
  const double one = interval_ > 0 ? usual_gap_ / interval_ : kUnknown;
  const double down = gap > 0 ? std::max(0.0, gap - (std::isnan(usual_gap_) ? 0 : usual_gap_)) : 0;
  const double again = one > 0 ? one * step.lost : 0;
  figures_.lost_iterations += step.lost;
  figures_.lost_seconds += again + down;
  figures_.down_seconds += down;
  if (const std::size_t made = report(Suspect::Kind::restart, step.row); made != kNone) {
    suspects_[made].first = step.before;
    suspects_[made].at = step.row[kIteration];
    suspects_[made].count = step.lost;
    suspects_[made].seconds = again + down;
    suspects_[made].value = down;
  }
  run_rows_ = 0;
  // The ranks may be on other nodes.
  spread_.excursion.reset();
  spread_.open = kNone;
  if (!speed_of(step.row, 1, kUnknown).per_gpu) {
    speed_.excursion.reset();
    speed_.open = kNone;
    for (BlockShift& shift : shifts_) shift.reset();
    open_shift_ = kNone;
    speeds_.clear();
    unit_ = {};
  }
}

Figures Verdicts::figures() const {
  Figures made = figures_;
  made.pace = recent_.pace();
  made.pauses = recent_.pauses();
  const Speed speed = recent_.speed(unit_);
  made.speed = speed.value;
  made.speed_unit = speed.unit;
  return made;
}

}  // namespace oddrank::metrics

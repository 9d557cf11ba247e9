// One row an iteration. The order of the questions: is it the iteration in hand, the next one, a
// late print of an older one, or a new start?
#include "metrics/sequence.hpp"

#include <cmath>

namespace oddrank::metrics {
namespace {

constexpr std::size_t kRemembered = 64;
constexpr std::size_t kMostWriters = 65'536;
constexpr std::size_t kMostLosses = 4096;
constexpr std::size_t kAgreed = 10;  // iterations of one mind before a difference counts
constexpr double kSame = 1e-9;

bool same(double a, double b) { return std::abs(a - b) <= kSame * std::max(std::abs(a), 1.0); }

}  // namespace

void Sequence::add(const Row& row, std::vector<Step>& steps) {
  if (row.kind == Row::Kind::straggler) {
    Step& made = steps.emplace_back();
    made.row = row;
    if (started_) made.row[kIteration] = step_.row[kIteration];
    return;
  }
  if (row.kind != Row::Kind::step) {
    sign(row.kind) = true;
    return;
  }
  Row counted = row;
  // HF Trainer without its progress bar: the rows are counted.
  if (!row.has(kIteration)) counted[kIteration] = ++counted_;
  if (row.has(kEpoch)) count_on(counted);
  const Place place = place_of(counted);
  if (place == Place::same) join(counted);
  if (place == Place::next) {
    const bool back = sign(Row::Kind::start) || counted[kIteration] <= step_.row[kIteration];
    flush(steps);
    begin(counted, started_ && back);
  }
  remember(counted);
}

// Adds the iterations of the epochs before, if epochs count theirs anew.
void Sequence::count_on(Row& row) {
  const auto [known, is_new] = before_epoch_.try_emplace(std::floor(row[kEpoch]), 0);
  if (is_new && known != before_epoch_.begin()) {
    const double before = std::prev(known)->second;
    const double last = step_.row[kIteration];
    const bool anew = std::next(known) == before_epoch_.end() && row[kIteration] + before <= last;
    known->second = anew ? last : before;
  }
  row[kIteration] += known->second;
  if (known->second > 0) row[kTotal] = kUnknown;
  if (before_epoch_.size() > kRemembered) before_epoch_.erase(before_epoch_.begin());
}

Sequence::Place Sequence::place_of(const Row& row) {
  const double at = row[kIteration];
  const double last = step_.row[kIteration];
  if (!started_ || at > last || sign(Row::Kind::start)) return Place::next;
  const double gap = row[kTime] - step_.row[kTime];
  const bool waited = gap > std::max(5 * pace_, 30.0);  // false where a time is not known
  if (at == last) return waited ? Place::next : Place::same;
  if (row.writer != 0) {
    const auto own = last_of_.find(row.writer);
    if (own != last_of_.end()) return own->second < at ? Place::late : Place::next;
  }
  // For an unknown writer: the earlier text comes from another rank.
  const bool printed = std::any_of(recent_.begin(), recent_.end(), [&](const auto& known) {
    return known.first == at && (same(known.second, row[kLoss]) || !row.has(kLoss));
  });
  return printed && !waited ? Place::late : Place::next;
}

void Sequence::begin(const Row& row, bool restarted) {
  const double before = step_.row[kIteration];
  const double gap = row[kTime] - step_.row[kTime];
  const bool had = started_;
  step_ = Step{};
  step_.row = row;
  step_.checkpoint = sign(Row::Kind::checkpoint);
  step_.evaluation = sign(Row::Kind::evaluation);
  signs_ = {};
  in_hand_ = started_ = true;
  losses_.clear();
  if (row.has(kLoss)) losses_.emplace_back(row.rank, row[kLoss]);
  if (!had) return;
  step_.before = before;
  step_.restarted = restarted;
  const double delta = row[kIteration] - before;
  if (restarted) {
    const double back = std::isnan(interval_) ? 1 : interval_;
    step_.lost = std::max(0.0, back - delta);
    last_of_.clear();
    recent_.clear();
    return;
  }
  // A missing row makes one difference larger, never smaller.
  interval_ = std::isnan(interval_) || delta < interval_ ? delta : interval_;
  if (gap > 0) pace_ = std::isnan(pace_) ? gap : pace_ + 0.1 * (std::min(gap, 3 * pace_) - pace_);
}

// Adds another rank's row of the iteration in hand.
void Sequence::join(const Row& row) {
  for (std::size_t column = 0; column < kColumns; ++column) {
    if (!step_.row.has(static_cast<Column>(column))) step_.row.values[column] = row.values[column];
  }
  step_.row.loss_is_nan |= row.loss_is_nan;
  step_.row.grad_is_nan |= row.grad_is_nan;
  if (row.has(kLoss) && losses_.size() < kMostLosses) losses_.emplace_back(row.rank, row[kLoss]);
}

void Sequence::flush(std::vector<Step>& steps) {
  if (!in_hand_) return;
  in_hand_ = false;
  judge_losses();
  steps.push_back(step_);
}

// Ranks that never agreed print losses of their own, which differ by design: their mean counts.
void Sequence::judge_losses() {
  if (losses_.size() < 2) return;
  if (own_losses_) {
    double sum = 0;
    for (const auto& [rank, loss] : losses_) sum += loss;
    step_.row[kLoss] = sum / static_cast<double>(losses_.size());
    return;
  }
  std::map<double, std::size_t> votes;
  for (const auto& [rank, loss] : losses_) ++votes[loss];
  if (votes.size() == 1) {
    ++agreed_;
    return;
  }
  if (agreed_ < kAgreed) {
    own_losses_ = true;
    return;
  }
  const auto most = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  Disagreement& found = step_.disagreement;
  found.writers = losses_.size();
  const bool majority = most->second * 2 > losses_.size();
  found.loss = majority ? most->first : losses_.front().second;
  double farthest = -1;
  for (const auto& [rank, loss] : losses_) {
    if (loss == found.loss) continue;
    if (std::abs(loss - found.loss) > farthest) {
      farthest = std::abs(loss - found.loss);
      found.other = loss;
    }
    if (majority) found.ranks.push_back(rank);
  }
  if (std::count(found.ranks.begin(), found.ranks.end(), -1) > 0) found.ranks.clear();
  std::sort(found.ranks.begin(), found.ranks.end());
}

void Sequence::remember(const Row& row) {
  if (row.writer != 0 && (last_of_.size() < kMostWriters || last_of_.count(row.writer) > 0)) {
    last_of_[row.writer] = row[kIteration];
  }
  if (!recent_.empty() && recent_.back().first == row[kIteration]) return;
  recent_.emplace_back(row[kIteration], row[kLoss]);
  if (recent_.size() > kRemembered) recent_.pop_front();
}

}  // namespace oddrank::metrics

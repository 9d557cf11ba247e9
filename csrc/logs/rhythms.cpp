// The way of a piece: its writer -> the gap since the writer's last line -> a histogram.
#include "logs/rhythms.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace oddrank::logs {

void Gaps::add(std::int64_t gap) {
  gap = std::max<std::int64_t>(gap, 0);
  ++buckets_[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(gap)))];
  ++count_;
  longest_ = std::max(longest_, gap);
}

std::int64_t Gaps::quantile(double part) const {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(part * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t bits = 0; bits < buckets_.size(); ++bits) {
    seen += buckets_[bits];
    if (seen >= wanted) return std::min(longest_, (std::int64_t{1} << std::min(bits, 62UL)) - 1);
  }
  return longest_;
}

std::size_t Rhythms::add() {
  all_.emplace_back();
  return all_.size() - 1;
}

void Rhythms::feed(std::string_view chunk, std::int64_t reference_ns, std::int64_t arrival_ns) {
  reader_.feed(chunk, [=, this](const Piece& piece) { take(piece, reference_ns, arrival_ns); });
}

void Rhythms::finish(std::int64_t reference_ns, std::int64_t arrival_ns) {
  reader_.finish([=, this](const Piece& piece) { take(piece, reference_ns, arrival_ns); });
  numbers_.forget();
  clock_.reset();
}

void Rhythms::take(const Piece& piece, std::int64_t reference_ns, std::int64_t arrival_ns) {
  lines_ = std::max(lines_, piece.line);
  const std::size_t number = numbers_(piece.who);
  Rhythm& rhythm = all_[number];
  // A second piece of one line.
  if (!piece.begins && rhythm.lines > 0 && rhythm.last_line == piece.line) return;
  if (rhythm.lines > 0) {
    rhythm.in_lines.add(static_cast<std::int64_t>(piece.line - rhythm.last_line));
  } else {
    rhythm.first_line = piece.line;
  }
  ++rhythm.lines;
  rhythm.last_line = piece.line;
  std::optional<std::int64_t> time = time_of(piece, reference_ns);
  if (!clock_ && arrival_ns > 0) time = arrival_ns;
  if (!time) return;
  if (rhythm.first_ns == 0) {
    rhythm.first_ns = *time;
  } else {
    rhythm.in_time.add(*time - rhythm.last_ns);
  }
  rhythm.last_ns = std::max(rhythm.last_ns, *time);
  last_ns_ = std::max(last_ns_, *time);
}

// Returns the time that a line names, on the clock of the file's first one.
std::optional<std::int64_t> Rhythms::time_of(const Piece& piece, std::int64_t reference_ns) {
  const auto time = find_time(piece.said, reference_ns);
  if (!time || time->ns <= 0 || time->clock == Timestamp::Clock::boot) return {};
  if (!clock_) {
    clock_ = time->clock;
    if (lines_ > 1) forget_times();
  }
  if (time->clock != *clock_) return {};
  return time->ns;
}

// Drops the times at which lines came: the log names its own.
void Rhythms::forget_times() {
  for (Rhythm& rhythm : all_) {
    rhythm.in_time = {};
    rhythm.first_ns = rhythm.last_ns = 0;
  }
  last_ns_ = 0;
}

}  // namespace oddrank::logs

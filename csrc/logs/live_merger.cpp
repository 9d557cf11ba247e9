// The way of a line: pieces -> the line that is open -> those of its log that wait -> the output.
#include "logs/live_merger.hpp"

namespace oddrank::logs {
namespace {

constexpr std::size_t kAllWaiting = 64u << 20;
constexpr std::size_t kLongestOpen = 1u << 20;

}  // namespace

LiveMerger::LiveMerger(const std::vector<std::int64_t>& references_ns, MergeOptions options)
    : options_(std::move(options)), output_(options_.fd) {
  for (std::size_t i = 0; i < references_ns.size(); ++i) {
    logs_.push_back(std::make_unique<Log>(i, references_ns[i], options_));
  }
}

void LiveMerger::feed(std::size_t log, std::string_view chunk, std::int64_t now_ns) {
  logs_.at(log)->reader.feed(chunk, [=, this](const Piece& piece) { take(log, piece, now_ns); });
}

void LiveMerger::finish(std::size_t log, std::int64_t now_ns) {
  logs_.at(log)->reader.finish([=, this](const Piece& piece) { take(log, piece, now_ns); });
  close(log, now_ns);
}

void LiveMerger::take(std::size_t number, const Piece& piece, std::int64_t now_ns) {
  Log& log = *logs_[number];
  log.spoke = true;
  if (piece.begins) {
    close(number, now_ns);
    log.lines.place(log.lines.time_of(piece.said, piece.who), counts_,
                    [] { return MergedLog::kNoTime; });
  }
  log.lines.append(MergedPiece(piece), log.open);
  if (piece.ends || log.open.size() > kLongestOpen) close(number, now_ns);
}

// Lets the line that is open wait for its turn. Others may come behind it: it gets an end.
void LiveMerger::close(std::size_t number, std::int64_t now_ns) {
  Log& log = *logs_[number];
  log.lines.finish(log.open);
  if (log.open.empty()) return;
  if (log.waiting.empty()) {
    by_time_.emplace(log.lines.time(), number);
    by_coming_.emplace(now_ns, number);
  }
  held_ += log.open.size();
  log.waiting.push_back({log.lines.time(), now_ns, std::move(log.open)});
  log.open.clear();
  while (held_ > kAllWaiting) give_first();
}

void LiveMerger::give(std::int64_t before_ns) {
  while (!by_coming_.empty() && by_coming_.begin()->first < before_ns) give_first();
  flush();
}

Merged LiveMerger::merged() const {
  Merged merged = counts_;
  for (std::size_t i = 0; i < logs_.size(); ++i) {
    if (!logs_[i]->spoke) continue;
    (logs_[i]->lines.timed() ? merged.with_times : merged.without_times).push_back(i);
  }
  return merged;
}

// Writes the line that is the earliest of all that wait.
void LiveMerger::give_first() {
  const std::size_t number = by_time_.begin()->second;
  std::deque<Line>& waiting = logs_[number]->waiting;
  const Line& line = waiting.front();
  output_.block() += line.text;
  held_ -= line.text.size();
  by_time_.erase(by_time_.begin());
  by_coming_.erase({line.came_ns, number});
  waiting.pop_front();
  if (!waiting.empty()) {
    by_time_.emplace(waiting.front().time, number);
    by_coming_.emplace(waiting.front().came_ns, number);
  }
  if (output_.full()) flush();
}

void LiveMerger::flush() {
  output_.flush(options_.pause);
  options_.pause();
}

}  // namespace oddrank::logs

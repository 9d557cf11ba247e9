// Merges files by time and passes rows on: file -> queue -> sequence -> verdicts, CSV, points.
#include "metrics/job.hpp"

#include <charconv>

namespace oddrank::metrics {

Job::Job(const std::vector<std::int64_t>& references_ns, const Limits& limits) : limits_(limits) {
  const Pattern pattern = limits.pattern.empty() ? Pattern() : Pattern(limits.pattern);
  for (std::size_t file = 0; file < references_ns.size(); ++file) {
    files_.push_back({Reader(static_cast<std::uint16_t>(file), references_ns[file], pattern), {}});
  }
}

void Job::feed(std::size_t index, std::string_view bytes) {
  File& file = files_.at(index);
  file.ended = false;
  file.reader.feed(bytes, file.rows);
  take(file);
}

void Job::end(std::size_t index) {
  File& file = files_.at(index);
  file.reader.finish(file.rows);
  file.ended = true;
  take(file);
}

void Job::pause(std::size_t index) {
  files_.at(index).ended = true;
  drain(true);
}

void Job::replace(std::size_t index) {
  files_.at(index).reader.begin_file(files_.at(index).rows);
  end(index);
}

void Job::take(File& file) {
  for (; file.timed < file.rows.size(); ++file.timed) {
    // Signs name no time of their own: they stay with the row before them.
    Row& row = file.rows[file.timed];
    if (row.has(kTime)) file.time = row[kTime];
    if (row.kind != Row::Kind::step && !row.has(kTime)) row[kTime] = file.time;
  }
  drain(true);
}

std::ptrdiff_t Job::wanted() const {
  const auto waits = [](const File& file) { return file.rows.empty() && !file.ended; };
  const auto found = std::find_if(files_.begin(), files_.end(), waits);
  return found == files_.end() ? -1 : found - files_.begin();
}

// Seconds since a run began order nothing: each run counts them anew.
bool Job::is_before(const Row& a, const Row& b) {
  return a[kTime] >= kLeastDate && b[kTime] >= kLeastDate && a[kTime] < b[kTime];
}

void Job::drain(bool wait) {
  while (!wait || wanted() < 0) {
    File* first = nullptr;
    for (File& file : files_) {
      if (file.rows.empty()) continue;
      if (first == nullptr || is_before(file.rows.front(), first->rows.front())) first = &file;
    }
    if (first == nullptr) break;
    sequence_.add(first->rows.front(), steps_);
    emit();
    first->rows.pop_front();
    --first->timed;
  }
}

void Job::flush() {
  drain(false);
  sequence_.flush(steps_);
  emit();
}

void Job::emit() {
  for (const Step& step : steps_) {
    verdicts_.add(step);
    if (step.row.kind != Row::Kind::step) continue;
    keep(step);
    if (limits_.csv) write_csv(step);
  }
  steps_.clear();
}

std::uint64_t Job::lines() const {
  std::uint64_t sum = 0;
  for (const File& file : files_) sum += file.reader.lines();
  return sum;
}

// Keeps one row in `stride_`, and each first one after a new start.
void Job::keep(const Step& step) {
  const Row& row = step.row;
  const double gap = row[kTime] - std::exchange(last_time_, row[kTime]);
  if (seen_++ % stride_ != 0 && !step.restarted) return;
  const Speed speed = speed_of(row, row[kIteration] - step.before, step.restarted ? 0 : gap);
  points_.push_back({row[kIteration], row[kTime], row[kLoss], row[kGradNorm], speed.value,
                     step.restarted ? 1.0 : 0.0});
  if (points_.size() < limits_.rows) return;
  std::size_t kept = 0;
  for (std::size_t index = 0; index < points_.size(); ++index) {
    if (index % 2 == 0 || points_[index][5] > 0) points_[kept++] = points_[index];
  }
  points_.resize(kept);
  stride_ *= 2;
}

void Job::write_csv(const Step& step) {
  if (!std::exchange(has_head_, true)) {
    for (const std::string_view name : kColumnNames) csv_.append(name).append(",");
    csv_ += "restarted,line,run_seconds\n";
  }
  char text[32];
  Row row = step.row;
  const double run_seconds =
      row[kTime] < kLeastDate ? std::exchange(row[kTime], kUnknown) : kUnknown;
  const auto write = [&](double value) {
    if (value == value) csv_.append(text, std::to_chars(text, text + sizeof text, value).ptr);
  };
  for (const double value : row.values) {
    write(value);
    csv_ += ',';
  }
  csv_ += step.restarted ? "1," : "0,";
  csv_.append(text, std::to_chars(text, text + sizeof text, row.line).ptr) += ',';
  write(run_seconds);
  csv_ += '\n';
}

std::string Job::take_csv() { return std::exchange(csv_, {}); }

}  // namespace oddrank::metrics

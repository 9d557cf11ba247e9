// The way of a line: chunk -> word of the table -> line around it -> its piece -> numbers -> row.
// Lines without such a word are never looked at by themselves: their ends are only counted.
#include "metrics/reader.hpp"

#include "logs/prefixes.hpp"
#include "logs/raw_text.hpp"
#include "logs/timestamps.hpp"

namespace oddrank::metrics {
namespace {

constexpr std::size_t kLongest = 1u << 20;  // bytes of a line; a longer one is read in pieces
constexpr std::size_t kBehind = 4096;       // bytes before a line in which its progress bar may be
constexpr std::size_t kMostText = 16'384;   // bytes of a line's numbers
constexpr std::uint64_t kBlockLines = 100;  // below its head

// The anchors of all formats, and behind them the signs.
const logs::Needles& words() {
  static const logs::Needles made = [] {
    std::vector<logs::Needle> all;
    for (const std::string_view anchor : anchors()) all.push_back({std::string(anchor)});
    for (const Sign& sign : signs()) all.push_back({std::string(sign.word)});
    return logs::Needles(std::move(all));
  }();
  return made;
}

std::uint64_t newlines(std::string_view text) {
  std::uint64_t count = 0;
  for (std::size_t at = 0; (at = text.find('\n', at)) != kNowhere; ++at) ++count;
  return count;
}

// Takes the number that ends at `end`, backwards. Returns where it begins, npos if there is none.
std::size_t number_before(std::string_view text, std::size_t end, double& value) {
  std::size_t at = end;
  while (at > 0 && end - at < 15 && logs::is_digit(text[at - 1])) --at;
  std::string_view digits = text.substr(at, end - at);
  return take_number(digits, value) ? at : kNowhere;
}

// Finds the last progress bar of tqdm, " 10/100 [00:10<01:30,  1.00it/s]", and takes the numbers
// that the row lacks. Lightning's bars begin anew in each epoch.
bool take_bar(std::string_view text, Row& row) {
  for (std::size_t at = text.rfind(" ["); at != kNowhere && at > 0; at = text.rfind(" [", at - 1)) {
    double total = 0;
    const std::size_t slash = number_before(text, at, total);
    if (slash == kNowhere || slash == 0 || text[slash - 1] != '/') continue;
    double done = 0;
    if (number_before(text, slash - 1, done) == kNowhere) continue;
    const std::string_view inside = text.substr(at + 2, 64);
    if (inside.substr(0, inside.find(']')).find('<') == kNowhere) continue;
    double seconds = 0;
    std::string_view clock = inside;
    if (!row.has(kTime) && take_duration(clock, seconds)) row[kTime] = seconds;
    if (row.has(kIteration)) return true;
    double epoch = 0;
    const std::size_t name = text.rfind("Epoch ", at);
    std::string_view number = text.substr(name == kNowhere ? text.size() : name + 6);
    if (!take_number(number, epoch) || !(epoch >= 0)) epoch = 0;
    row[kIteration] = epoch * total + done;
    if (name == kNowhere) row[kTotal] = total;
    return true;
  }
  return false;
}

}  // namespace

Reader::Reader(std::uint16_t file, std::int64_t reference_ns, Pattern pattern)
    : file_(file), reference_ns_(reference_ns), pattern_(std::move(pattern)) {}

void Reader::feed(std::string_view chunk, std::deque<Row>& rows) {
  const std::size_t fresh = held_.size();
  held_.append(chunk);
  // Bars that redraw themselves have no other end than a carriage return.
  std::size_t end = held_.find_last_of("\r\n");
  // A line that does not end is read as far as it goes once it is long.
  if (end == kNowhere || end < std::max(open_, fresh)) {
    if (held_.size() - open_ < kLongest) return;
    end = held_.size() - 1;
  }
  scan(held_, open_, end + 1, rows);
  const std::size_t keep = end + 1 - std::min(end + 1, kBehind);
  open_ = end + 1 - keep;
  held_.erase(0, keep);
}

void Reader::finish(std::deque<Row>& rows) {
  // The number at the end of a line that is cut off may be half of one: 9.8 of 9.8E-01.
  const std::size_t whole = held_.find_last_not_of("0123456789.,eE+-") + 1;
  const bool is_cut = held_.size() > open_ && !held_.ends_with('\n');
  if (whole > open_) scan(held_, open_, whole, rows);
  if (is_cut) ++lines_;
  held_.clear();
  open_ = 0;
}

void Reader::begin_file(std::deque<Row>& rows) {
  finish(rows);
  earlier_ += std::exchange(lines_, 0);
  csv_ = {};
  at_start_ = true;
}

// Reads the lines of text[from, end); the text before is known.
void Reader::scan(std::string_view text, std::size_t from, std::size_t end, std::deque<Row>& rows) {
  text = text.substr(0, end);
  if (std::exchange(at_start_, false)) {
    csv_ = Csv(text.substr(from, text.find_first_of("\r\n", from) - from));
  }
  std::size_t counted = from, read = from;
  while (from < text.size()) {
    const logs::Needles::Hit hit =
        takes_all() ? logs::Needles::Hit{from, 0} : words().next(text, from);
    if (hit.at == kNowhere) break;
    lines_ += newlines(text.substr(counted, hit.at - counted));
    counted = hit.at;
    from = take_line(text, read, hit, rows);
  }
  lines_ += newlines(text.substr(counted));
}

// Takes the numbers around a word. read: the end of the last line, which is read once. Returns
// where the search goes on.
std::size_t Reader::take_line(std::string_view text, std::size_t& read, logs::Needles::Hit hit,
                              std::deque<Row>& rows) {
  if (hit.needle >= anchors().size()) {
    const Row::Kind kind = signs()[hit.needle - anchors().size()].kind;
    // One of the many lines of a checkpoint is enough.
    if (rows.empty() || rows.back().kind != kind) {
      Row& row = rows.emplace_back();
      row.kind = kind;
      row.file = file_;
      row.line = lines_ + 1;
    }
    return hit.at + words()[hit.needle].text.size();
  }
  // The line around the word, as far as it is near, and only its last redrawn part.
  std::size_t begin = std::max(read, hit.at - std::min(hit.at, kMostText));
  std::size_t last = std::min(text.size(), hit.at + kMostText);
  for (const char end : {'\n', '\r'}) {
    const std::size_t before = text.substr(begin, hit.at - begin).rfind(end);
    if (before != kNowhere) begin += before + 1;
    last = std::min(last,
                    hit.at + std::min(text.substr(hit.at, last - hit.at).find(end), last - hit.at));
  }
  std::string_view line = text.substr(begin, last - begin);
  const std::size_t lead = std::min(begin, kBehind);
  const std::string_view before = text.substr(begin - lead, lead);
  if (line.starts_with('{') && logs::unpack_docker(line, unpacked_)) line = unpacked_;
  if (line.find('\x1b') != kNowhere) {
    logs::without_escapes(line, plain_);
    line = plain_;
  }
  if (takes_all()) {
    Row row;
    const std::size_t front = csv_.empty() ? pattern_.read(line, row) : 0;
    const bool fits = csv_.empty() ? front != kNowhere && says(row) : csv_.read(line, row);
    if (fits) add(line.substr(0, front), row, rows);
    read = last;
    return last + 1;
  }
  // Several processes may have written one line, and a progress bar may stand in front.
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t torn = std::min(logs::next_torn(line, at + 1), line.size());
    take_step(before, line.substr(at, torn - at), rows);
    at = torn;
  }
  read = std::max(last, hit.at + words()[hit.needle].text.size());
  return read;
}

// Adds the row of a line, or of the piece of one that a process wrote.
void Reader::take_step(std::string_view before, std::string_view line, std::deque<Row>& rows) {
  Row row;
  const Found found = read_fields(line, row);
  if (found.begin == kNowhere) return;
  // HF Trainer's last line has means of the whole training.
  if (found.is_dict && line.find("train_runtime") != kNowhere) return;
  const std::string_view head = line.substr(0, found.begin);
  if (row.kind == Row::Kind::step) {
    if (found.is_block) {
      block_ = row;
      block_.line = lines_;
    }
    if (!says(row)) return;
    if (!take_bar(head, row) && !row.has(kIteration)) {
      if (found.is_dict) {
        take_bar(before, row);
      } else if (block_.has(kIteration) && lines_ - block_.line < kBlockLines) {
        row[kIteration] = block_[kIteration];
        row[kTotal] = block_[kTotal];
      } else {
        return;
      }
    }
  }
  add(head, row, rows);
}

// head: the text before the numbers, with their writer and time.
void Reader::add(std::string_view head, Row& row, std::deque<Row>& rows) {
  row.file = file_;
  row.line = lines_ + 1;
  const logs::Prefix who = logs::find_prefix_behind_bar(head);
  row.writer = who.empty() ? 0 : std::max<std::uint64_t>(logs::HashWriter()(who), 1);
  if (who.rank >= 0 && who.rank < 10'000'000) row.rank = static_cast<std::int32_t>(who.rank);
  if (const auto time = logs::find_time(head, reference_ns_)) {
    row[kTime] = static_cast<double>(time->ns) * 1e-9;
  }
  rows.push_back(row);
}

}  // namespace oddrank::metrics

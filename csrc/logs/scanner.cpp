// The way of a line: chunk -> line -> pieces between carriage returns -> needles -> torn pieces ->
// match. Only lines that contain a needle are looked at more closely than for their prefix.
#include "logs/scanner.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <tuple>

#include "logs/raw_text.hpp"
#include "os/fd.hpp"
#include "os/whole_file.hpp"

namespace oddrank::logs {
namespace {

constexpr std::size_t kBlock = 64u << 10;
constexpr std::uint64_t kApart = 4u << 20;  // bytes between marks
constexpr std::size_t kBlocks = 65'536;     // writers whose next lines are awaited
constexpr std::size_t kLead = 96;           // bytes of a prefix that no table knows

// Returns a text without escape sequences and control characters.
std::string plain(std::string_view text, std::size_t most) {
  std::string result;
  result.reserve(std::min(text.size(), most));
  for (std::size_t at = 0; at < text.size() && result.size() < most;) {
    const char c = text[at];
    if (c == '\x1b') {
      at = behind_escape(text, at);
      continue;
    }
    if (static_cast<unsigned char>(c) >= 0x20 || c == '\t') result += c;
    ++at;
  }
  return result;
}

// Lines of a traceback are indented; rich's are in a frame of box-drawing characters.
bool is_indented(std::string_view text) {
  return !text.empty() && (text[0] == ' ' || text[0] == '\t' || text.starts_with("\xe2\x94") ||
                           text.starts_with("\xe2\x95"));
}

// Returns whether a line begins like another one, except for digits, as of a time.
bool begins_alike(std::string_view line, std::string_view other) {
  return line.size() >= other.size() &&
         std::equal(other.begin(), other.end(), line.begin(),
                    [](char a, char b) { return a == b || (is_digit(a) && is_digit(b)); });
}

// Scans chunk by chunk. Feed it everything, then take finish().
class Scanner {
 public:
  Scanner(const Needles& needles, const Limits& limits)
      : needles_(needles), limits_(limits), kept_(needles.size()) {
    scan_.lines = limits.begin.lines;
  }

  // Feeds a part of a chunk, less than Limits::line. quiet: no word lies in it: its lines only say
  // which processes wrote. counted: was fed the same and has counted its lines, or this.
  void feed(std::string_view block, bool quiet, const Scanner& counted) {
    quiet_ = quiet;
    while (!block.empty()) {
      if (quiet && limits_.speakers == 0 && carry_.empty() && !inside_ && blocks_.empty()) {
        skip_lines(block, counted);
      }
      const std::size_t newline = block.find('\n');
      const bool whole = newline != std::string_view::npos;
      const std::string_view part = block.substr(0, newline);
      if (carry_.empty() && whole) {
        line(part, true);
      } else {
        carry(part);
        if (whole || carry_.size() >= limits_.line) take_carry(whole);
      }
      if (!whole) break;
      block.remove_prefix(newline + 1);
    }
  }

  // Returns how many lines were scanned to their ends.
  std::uint64_t ended() const { return scan_.lines - (inside_ ? 1 : 0); }

  Scan finish() {
    if (!carry_.empty() || inside_) take_carry(true);
    std::vector<std::tuple<std::uint64_t, std::uint64_t, Match*>> order;
    for (const std::unique_ptr<Kept>& kept : kept_) {
      if (kept == nullptr) continue;
      for (auto* half : {&kept->first, &kept->last}) {
        for (auto& [number, match] : *half) order.emplace_back(match.line, number, &match);
      }
    }
    std::sort(order.begin(), order.end());
    scan_.matches.reserve(order.size());
    for (auto& [line, number, match] : order) scan_.matches.push_back(std::move(*match));
    return std::move(scan_);
  }

 private:
  struct Kept {
    std::deque<std::pair<std::uint64_t, Match>> first;
    std::deque<std::pair<std::uint64_t, Match>> last;
  };
  struct Block {
    std::size_t needle;
    int left;
    bool indented;
    char stream;
    std::string lead;  // text before the word: perhaps a prefix that no table knows
    bool led = false;  // the lines begin so, too
  };

  // Goes behind the lines that end in a block: nothing is to be found there.
  void skip_lines(std::string_view& block, const Scanner& counted) {
    const std::string_view lines = block.substr(0, block.rfind('\n') + 1);
    scan_.lines = &counted != this ? counted.scan_.lines
                                   : scan_.lines + std::count(lines.begin(), lines.end(), '\n');
    block.remove_prefix(lines.size());
  }

  // Keeps the beginning of a line. A needle may lie across the border of two parts.
  void carry(std::string_view part) {
    const std::size_t reach = std::max<std::size_t>(needles_.longest(), 1) - 1;
    carry_quiet_ = carry_quiet_ && quiet_;
    if (carry_quiet_ && !carry_.empty()) {
      std::string border = carry_.substr(carry_.size() - std::min(carry_.size(), reach));
      carry_quiet_ = !needles_.any_in(border.append(part.substr(0, reach)));
    }
    carry_.append(part);
  }

  // Scans the text carried over from chunk to chunk. Keeps a few bytes of a line that goes on: a
  // needle may lie across the border.
  void take_carry(bool whole) {
    line_.swap(carry_);  // both keep their memory
    carry_.clear();
    const bool quiet = std::exchange(quiet_, std::exchange(carry_quiet_, true));
    line(line_, whole);
    quiet_ = quiet;
    if (!whole && inside_ && needles_.longest() > 1) {
      carry_.assign(line_, line_.size() - std::min(line_.size(), needles_.longest() - 1));
    }
  }

  void line(std::string_view text, bool whole) {
    begins_ = !inside_;
    inside_ = !whole;
    if (begins_) ++scan_.lines;
    if (!is_wanted()) return;
    // The beginning of a later piece has been scanned as the end of the piece before.
    const std::size_t seen = begins_ ? 0 : std::min(text.size(), needles_.longest() - 1);
    if (whole && text.ends_with('\r')) text.remove_suffix(1);
    scan(text, whole, seen);
  }

  // Returns whether the line in hand is in one of the ranges.
  bool is_wanted() {
    while (range_ < limits_.ranges.size() && limits_.ranges[range_].last < scan_.lines) ++range_;
    return limits_.ranges.empty() ||
           (range_ < limits_.ranges.size() && limits_.ranges[range_].first <= scan_.lines);
  }

  void scan(std::string_view text, bool whole, std::size_t seen) {
    if (begins_) {
      line_who_ = find_prefix(text);
      if (!whole) line_writer_ = Writer(line_who_);  // outlives this text
      if (!line_who_.empty()) speak(line_who_);
      if (!blocks_.empty() && follow(text)) return;
    }
    if (quiet_ || needles_.in(text, seen) == Needles::kNone) return;
    for (bool first = begins_; !text.empty(); first = false) {
      const std::size_t end = std::min(text.find('\r'), text.size());
      piece(text.substr(0, end), first, std::min(seen, end));
      const std::size_t taken = std::min(end + 1, text.size());
      text.remove_prefix(taken);
      seen -= std::min(seen, taken);
    }
  }

  void piece(std::string_view text, bool begins, std::size_t seen) {
    if (needles_.in(text, seen) == Needles::kNone) return;
    Prefix who = find_prefix_behind_bar(text);
    bool own = begins || !who.empty();
    while (true) {
      // A number too long for a rank is no prefix: the search must not find it again.
      const std::size_t torn = next_torn(text, std::max<std::size_t>(who.text, 1));
      const std::string_view part = text.substr(0, torn);
      if (const std::size_t needle = needles_.in(part, seen); needle != Needles::kNone) {
        match(part, who, own ? Writer(who) : inherited(), needle);
      }
      if (torn == std::string_view::npos) return;
      text.remove_prefix(torn);
      seen -= std::min(seen, torn);
      who = find_prefix(text);
      own = true;
    }
  }

  // Returns the writer of a piece without a prefix of its own: its line's.
  Writer inherited() const { return begins_ ? Writer(line_who_) : line_writer_; }

  void match(std::string_view text, const Prefix& who, const Writer& writer, std::size_t needle) {
    Match found;
    found.line = scan_.lines;
    found.needle = needle;
    found.writer = writer;
    if (limits_.text > 0) found.time = find_time(text, limits_.reference_ns);
    std::string_view own = text.substr(who.text);
    // A long line is cut to the text around the word.
    const std::size_t at = own.find(needles_[needle].text);
    if (at != std::string_view::npos && at + needles_[needle].text.size() > limits_.text) {
      own.remove_prefix(at - std::min(at, limits_.text / 4));
    }
    found.text = plain(own, limits_.text);
    if (!who.empty()) speak(who);
    keep(std::move(found));
    const int lines = needles_[needle].follow;
    if (lines == 0) return;
    if (blocks_.size() < kBlocks) {
      const std::size_t before = text.substr(who.text).find(needles_[needle].text);
      const bool led = lines > 0 && before != std::string_view::npos && before <= kLead;
      std::string lead(text.substr(who.text, led ? before : 0));
      if (lead.find_first_not_of(" \t") == std::string::npos) lead.clear();
      const char stream = who.empty() ? line_who_.stream : who.stream;
      blocks_.insert_or_assign(writer,
                               Block{needle, std::abs(lines), lines > 0, stream, std::move(lead)});
    } else {
      ++scan_.left_out;
    }
  }

  // Adds a line to its writer's block. Returns false where the line is to be scanned, too.
  bool follow(std::string_view text) {
    const auto awaited = blocks_.find(line_who_);
    if (awaited == blocks_.end()) return false;
    Block& block = awaited->second;
    if (block.stream != line_who_.stream) return false;
    std::string_view own = text.substr(std::min(line_who_.text, text.size()));
    if (own.find("Traceback (most recent call last)") != std::string_view::npos) return false;
    if (!behind_lead(block, own)) return false;
    Match found;
    found.line = scan_.lines;
    found.needle = block.needle;
    found.follows = true;
    found.text = plain(own, limits_.text);
    found.writer = awaited->first;
    const bool counted = !block.indented;
    const bool ends = !counted && !is_indented(own);
    if (--block.left == 0 || ends) blocks_.erase(awaited);
    // Behind a traceback, a line with a needle of its own is a match of that.
    if (!counted && needles_.any_in(text)) return false;
    keep(std::move(found));
    return true;
  }

  // Takes the block's own beginning off a line. Returns false if another process wrote the line:
  // the block's lines have begun so until now, and it does not.
  static bool behind_lead(Block& block, std::string_view& own) {
    if (block.lead.empty()) return true;
    if (!begins_alike(own, block.lead)) return !block.led;
    block.led = true;
    own.remove_prefix(block.lead.size());
    return true;
  }

  void keep(Match match) {
    if (kept_[match.needle] == nullptr) kept_[match.needle] = std::make_unique<Kept>();
    Kept& kept = *kept_[match.needle];
    const std::size_t half = std::max<std::size_t>(limits_.matches / 2, 1);
    held_ += match.text.size() + sizeof(Match);
    if (kept.last.empty() && kept.first.size() < half && held_ < limits_.total / 2) {
      kept.first.emplace_back(number_++, std::move(match));
      return;
    }
    kept.last.emplace_back(number_++, std::move(match));
    while (kept.last.size() > 1 && (kept.last.size() > half || held_ > limits_.total)) {
      held_ -= kept.last.front().second.text.size() + sizeof(Match);
      kept.last.pop_front();
      ++scan_.left_out;
    }
  }

  void speak(const Prefix& who) {
    if (limits_.speakers == 0) return;
    const std::size_t index = numbers_(who);
    if (index >= limits_.speakers) return;
    Speaker& speaker = scan_.speakers[index];
    if (speaker.last_line != scan_.lines) ++speaker.lines;
    speaker.last_line = scan_.lines;
  }

  // Returns a new speaker's number; Limits::speakers if there are too many.
  std::size_t add_speaker(const Writer& writer) {
    const std::size_t index = scan_.speakers.size();
    if (index >= limits_.speakers) return limits_.speakers;
    scan_.speakers.push_back({writer, 0, scan_.lines, 0});
    return index;
  }

  const Needles& needles_;
  const Limits limits_;
  Scan scan_;
  std::string carry_;                        // the beginning of a line whose end has not come yet
  std::string line_;                         // the carried text, while it is scanned
  bool inside_ = false;                      // a piece of a long line has been scanned
  bool quiet_ = false;                       // the block in hand holds no needle
  bool carry_quiet_ = true;                  // nor does the carried text
  bool begins_ = true;                       // this is the first piece of its line
  Prefix line_who_;                          // writer of the line whose first piece is scanned
  Writer line_writer_;                       // the same, for the later pieces of a long line
  std::vector<std::unique_ptr<Kept>> kept_;  // one a needle, null until found
  std::uint64_t number_ = 0;
  std::size_t held_ = 0;
  std::unordered_map<Writer, Block, HashWriter, SameWriter> blocks_;
  WriterNumbers numbers_{[this](const Writer& writer) { return add_speaker(writer); }};
  std::size_t range_ = 0;  // index of the first limit that does not end before the line in hand
};

// Returns the words of all readers, each with its reader's number.
Needles joined(const std::vector<Readers::Reader>& readers) {
  if (readers.size() > 64) throw Error("more than 64 readers of a log");
  std::vector<Needle> words;
  for (std::size_t reader = 0; reader < readers.size(); ++reader) {
    const Needles& own = readers[reader].needles;
    words.reserve(words.size() + own.size());
    for (std::size_t word = 0; word < own.size(); ++word)
      words.push_back({own[word].text, 0, reader});
  }
  return Needles(std::move(words));
}

}  // namespace

Scan scan_text(std::string_view text, const Needles& needles, const Limits& limits,
               std::size_t chunk) {
  Scanner scanner(needles, limits);
  for (; !text.empty(); text.remove_prefix(std::min(chunk, text.size()))) {
    const std::string_view part = text.substr(0, chunk);
    scanner.feed(part, !needles.any_in(part), scanner);
  }
  return scanner.finish();
}

Readers::Readers(std::vector<Reader> readers)
    : readers_(std::move(readers)), all_(joined(readers_)) {}

std::vector<Scan> Readers::scan(const std::string& path) const {
  struct stat info {};
  const Fd fd = open_regular(path, info);
  std::deque<Scanner> scanners;
  std::uint64_t everyone = 0;
  const std::vector<LineRange>& ranges = readers_[0].limits.ranges;
  for (const Reader& reader : readers_) {
    everyone |= std::uint64_t{1} << scanners.size();
    Limits limits = reader.limits;
    // The year 2200 at the latest: file systems hold times whose nanoseconds are no int64.
    limits.reference_ns =
        std::clamp<std::int64_t>(info.st_mtim.tv_sec, 0, 7'258'118'400) * 1'000'000'000;
    scanners.emplace_back(reader.needles, limits);
  }
  Mark at = readers_[0].limits.begin;
  if (::lseek(fd.get(), static_cast<off_t>(at.bytes), SEEK_SET) < 0) throw_errno("seek " + path);
  std::vector<Mark> marks{at};
  static thread_local std::string room;  // many files are small
  const auto take = [&](std::string_view chunk) {
    at.lines = scanners.front().ended();
    if (at.bytes >= marks.back().bytes + kApart) marks.push_back(at);
    at.bytes += chunk.size();
    for (; !chunk.empty(); chunk.remove_prefix(std::min(kBlock, chunk.size()))) {
      const std::string_view block = chunk.substr(0, kBlock);
      std::uint64_t readers = all_.readers_in(block, everyone);
      for (Scanner& scanner : scanners) {
        scanner.feed(block, (std::exchange(readers, readers >> 1) & 1) == 0, scanners.front());
      }
    }
    return ranges.empty() || scanners.front().ended() <= ranges.back().last;
  };
  read_chunks(fd, path, take, room);
  std::vector<Scan> found;
  found.reserve(scanners.size());
  for (Scanner& scanner : scanners) found.push_back(scanner.finish());
  found[0].marks = std::move(marks);
  return found;
}

}  // namespace oddrank::logs

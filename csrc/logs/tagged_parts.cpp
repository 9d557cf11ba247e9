// The way of a line: its tags -> the parts between them -> what waits for their ends. Only the last
// part of a line can end one.
#include "logs/tagged_parts.hpp"

#include <algorithm>
#include <utility>

#include "logs/cursor.hpp"

namespace oddrank::logs {
namespace {

constexpr std::size_t kRow = 74;  // dashes around mpirun's own messages

constexpr std::size_t kLongestHead = 4 * kLongestPrefix;  // each line that waits has a copy

// Returns where the row of dashes begins that ends a part, behind other text. 0: nowhere.
std::size_t find_row(std::string_view part) {
  while (part.ends_with('\n') || part.ends_with('\r')) part.remove_suffix(1);
  if (!part.ends_with("--")) return 0;
  const std::size_t before = part.find_last_not_of('-');
  return before != std::string_view::npos && part.size() - before - 1 == kRow ? before + 1 : 0;
}

std::size_t number_of(char stream) { return stream == 'o' ? 0 : stream == 'e' ? 1 : 2; }

// The text before a line's first tag. Other text than prefixes is a line of its own.
struct Head {
  std::string_view text;
  Prefix who;
  bool is_prefix = true;
};

Head find_head(std::string_view line, const Tag& first, std::size_t repeated) {
  if (first.begin == 0) return {};
  const std::string_view text = line.substr(0, first.begin);
  if (!first || text.size() > kLongestHead) return {text, {}, false};
  // The tag is needed: some prefixes are told by what follows.
  const Prefix who = find_prefix(line.substr(0, first.text));
  if (who.tag != first.text && first.begin > repeated) return {text, {}, false};
  return {text, who, true};
}

}  // namespace

bool TaggedParts::needs(std::string_view line, const Prefix& who, bool ends) {
  if (who.tag == 0) return tagged_ && (row_.size > 0 || next_tag(line, 0));
  tagged_ = true;
  return waiting_ > 0 || !ends || next_tag(line, who.tag) || find_row(line) > who.tag;
}

const std::vector<Joined>& TaggedParts::add(std::string_view line, std::size_t repeated,
                                            std::uint64_t number, bool ends) {
  decide(line);
  Tag tag = next_tag(line, 0);
  Head head = find_head(line, tag, repeated);
  std::size_t begin = repeated;  // of the part in hand
  if (!head.is_prefix) {
    ready_.push_back({head.text, head.text, number});
    begin = head.text.size();
    head = {};
  }
  Prefix& who = head.who;
  while (tag) {
    const Tag next = next_tag(line, tag.text);
    const Part part{line.substr(begin, next ? next.begin - begin : next.begin), tag.text - begin,
                    begin > 0 ? head.text : std::string_view()};
    who.task = tag.task;
    const std::size_t place = number_of(tag.stream);
    Stream& stream = streams_[place];
    const std::size_t row = next || !ends ? 0 : find_row(part.text);
    if (row > part.tag) row_ = {part.text.size() - row, place, Writer(who), number};
    if (next || !ends || row > part.tag) {
      hold(stream, who, part, number);
    } else {
      complete(stream, who, part, number);
    }
    begin += part.text.size();
    tag = next;
  }
  if (held_ > most_held_ || waiting_ > WriterNumbers::kMost) give_all();
  return ready_;
}

// mpirun's own message begins with a row of dashes, and goes on with lines without a tag. It may
// cut into a line. A program's row is followed by a tag, as each of its lines has one.
const std::vector<Joined>& TaggedParts::decide(std::string_view line) {
  ready_.clear();
  given_.clear();
  if (row_.size == 0) return ready_;
  Stream& stream = streams_[row_.stream];
  const auto found = stream.find(row_.who);
  if (find_prefix(line).tag > 0) {
    give(release(stream, found));
  } else {
    Held& held = found->second;
    const std::size_t before = held.text.size() - row_.size;
    const std::string dashes = held.text.substr(before);
    held.text.resize(before);
    held.said.resize(held.said.size() - row_.size);
    held_ -= 2 * row_.size;
    give({dashes, dashes, row_.line, 0});
  }
  row_ = {};
  return ready_;
}

const std::vector<Joined>& TaggedParts::finish() {
  ready_.clear();
  give_all();
  return ready_;
}

TaggedParts::Cut TaggedParts::cut(std::string_view line, std::size_t repeated) {
  const Tag first = next_tag(line, 0);
  if (!first) return {};
  Tag last = first;
  for (Tag tag = first; tag; tag = next_tag(line, tag.text)) last = tag;
  const Head head = find_head(line, first, repeated);
  if (last.begin == first.begin && head.is_prefix) return {};
  return {last.begin, head.is_prefix ? head.text : std::string_view()};
}

void TaggedParts::hold(Stream& stream, const Prefix& who, const Part& part, std::uint64_t number) {
  if (const auto found = stream.find(who); found != stream.end()) {
    found->second.text += part.text;
    found->second.said += part.text.substr(part.tag);
    held_ += 2 * part.text.size() - part.tag;
    return;
  }
  Held& held = stream.emplace(Writer(who), Held{}).first->second;
  held.text = part.text;
  held.said = part.head;
  held.said += part.text;
  held.line = number;
  held.order = order_++;
  held_ += held.size();
  ++waiting_;
}

void TaggedParts::complete(Stream& stream, const Prefix& who, const Part& part,
                           std::uint64_t number) {
  const auto found = stream.find(who);
  if (found == stream.end()) {
    if (part.head.empty()) {
      ready_.push_back({part.text, part.text, number});
    } else {
      give({std::string(part.text), std::string(part.head) += part.text, number, 0});
    }
    return;
  }
  Held held = release(stream, found);
  held.text += part.text;
  held.said += part.text.substr(part.tag);
  give(std::move(held));
}

TaggedParts::Held TaggedParts::release(Stream& stream, Stream::iterator held) {
  Held released = std::move(held->second);
  stream.erase(held);
  --waiting_;
  held_ -= released.size();
  return released;
}

void TaggedParts::give(Held held) {
  const Held& kept = given_.emplace_back(std::move(held));
  ready_.push_back({kept.text, kept.said, kept.line});
}

void TaggedParts::give_all() {
  std::vector<Held> all;
  for (Stream& stream : streams_) {
    for (auto& [writer, held] : stream) all.push_back(std::move(held));
    stream.clear();
  }
  std::sort(all.begin(), all.end(), [](const Held& a, const Held& b) { return a.order < b.order; });
  for (Held& held : all) give(std::move(held));
  held_ = waiting_ = 0;
  row_ = {};
}

}  // namespace oddrank::logs

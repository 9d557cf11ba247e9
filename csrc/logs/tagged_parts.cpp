// The way of a line: its tags -> the parts between them -> what waits for their ends. Only the last
// part of a line can end one.
#include "logs/tagged_parts.hpp"

#include <algorithm>
#include <utility>

namespace oddrank::logs {
namespace {

constexpr std::size_t kRow = 74;  // dashes around mpirun's own messages

// Returns where the row of dashes begins that mpirun wrote behind a part without an end. 0:
// nowhere.
std::size_t message(std::string_view part) {
  while (part.ends_with('\n') || part.ends_with('\r')) part.remove_suffix(1);
  if (!part.ends_with("--")) return 0;
  const std::size_t before = part.find_last_not_of('-');
  return before != std::string_view::npos && part.size() - before - 1 == kRow ? before + 1 : 0;
}

std::size_t number_of(char stream) { return stream == 'o' ? 0 : stream == 'e' ? 1 : 2; }

}  // namespace

bool TaggedParts::needs(std::string_view line, const Prefix& who, bool ends) {
  if (who.tag == 0) return tagged_ && next_tag(line, 0);
  tagged_ = true;
  return waiting_ > 0 || !ends || next_tag(line, who.tag) || message(line) > who.tag;
}

const std::vector<Joined>& TaggedParts::add(std::string_view line, std::uint64_t number,
                                            bool ends) {
  ready_.clear();
  given_.clear();
  Tag tag = next_tag(line, 0);
  std::string_view head = line.substr(0, tag.begin);
  Prefix who = find_prefix(head);
  std::size_t begin = 0;         // of the part in hand
  if (who.text < head.size()) {  // text that no tag is in front of: a line of its own
    ready_.push_back({head, head, number});
    begin = head.size();
    head = {};
    who = {};
  }
  while (tag) {
    const Tag next = next_tag(line, tag.text);
    Part part{line.substr(begin, next ? next.begin - begin : next.begin), tag.text - begin,
              begin > 0 ? head : std::string_view()};
    who.task = tag.task;
    Stream& stream = streams_[number_of(tag.stream)];
    const std::size_t row = next || !ends ? 0 : message(part.text);
    if (row > part.tag) {
      const std::string_view dashes = part.text.substr(row);
      part.text = part.text.substr(0, row);
      hold(stream, who, part, number);
      ready_.push_back({dashes, dashes, number});
    } else if (next || !ends) {
      hold(stream, who, part, number);
    } else {
      complete(stream, who, part, number);
    }
    begin += part.text.size();
    tag = next;
  }
  if (held_ > kMostHeld || waiting_ > WriterNumbers::kMost) give_all();
  return ready_;
}

const std::vector<Joined>& TaggedParts::finish() {
  ready_.clear();
  given_.clear();
  give_all();
  return ready_;
}

std::size_t TaggedParts::addable(std::string_view line) {
  std::size_t last = 0;
  for (Tag tag = next_tag(line, 0); tag; tag = next_tag(line, tag.text)) last = tag.begin;
  return last;
}

void TaggedParts::hold(Stream& stream, const Prefix& who, const Part& part, std::uint64_t number) {
  held_ += part.text.size();
  if (const auto found = stream.find(who); found != stream.end()) {
    found->second.text += part.text;
    found->second.said += part.text.substr(part.tag);
    return;
  }
  Held& held = stream.emplace(Writer(who), Held{}).first->second;
  held.text = part.text;
  held.said = part.head;
  held.said += part.text;
  held.line = number;
  held.order = order_++;
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
  Held held = std::move(found->second);
  stream.erase(found);
  --waiting_;
  held_ -= held.text.size();
  held.text += part.text;
  held.said += part.text.substr(part.tag);
  give(std::move(held));
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
}

}  // namespace oddrank::logs

// Checks every n-th group of four bytes of a text, and compares words where one fits.
#include "logs/needles.hpp"

#include <algorithm>
#include <utility>

#include "os/error.hpp"

namespace oddrank::logs {
namespace {

constexpr std::size_t kLongestWindow = 200;
constexpr std::size_t kWords = 1024;  // words of bits, 64 groups each

}  // namespace

Needles::Needles(std::vector<Needle> needles) : needles_(std::move(needles)), bits_(kWords) {
  if (needles_.size() > kMost) throw Error("more than 1024 words to look for in a log");
  std::size_t shortest = kLongestWindow;
  for (const Needle& needle : needles_) {
    if (needle.text.size() < kLeast) {
      throw Error("a word to look for in a log needs 4 bytes: " + needle.text);
    }
    shortest = std::min(shortest, needle.text.size());
    longest_ = std::max(longest_, needle.text.size());
  }
  stride_ = shortest - 3;
  for (std::size_t index = 0; index < needles_.size(); ++index) {
    for (std::size_t offset = 0; offset < stride_; ++offset) {
      const char* text = needles_[index].text.data();
      const std::uint16_t group = hash(four_bytes(text + offset));
      bits_[group / 64] |= std::uint64_t{1} << (group % 64);
      places_.push_back({group, static_cast<std::uint16_t>(index),
                         static_cast<std::uint8_t>(offset), four_bytes(text)});
    }
  }
  std::sort(places_.begin(), places_.end(),
            [](const Place& a, const Place& b) { return a.group < b.group; });
  first_.resize(kWords);
  for (std::size_t place = places_.size(); place-- > 0;) {
    first_[places_[place].group / 64] = static_cast<std::uint16_t>(place);
  }
}

bool Needles::fits(std::string_view text, std::size_t at, const Place& place) const {
  // The first bytes rule out nearly all: many needles hold a run of spaces, and so do many lines.
  if (at < place.offset || four_bytes(text.data() + at - place.offset) != place.head) return false;
  return text.substr(at - place.offset).starts_with(needles_[place.needle].text);
}

std::size_t Needles::candidate(std::string_view text, std::size_t at) const {
  const char* const data = text.data();
  const std::size_t end = text.size() < 4 ? 0 : text.size() - 3;
  // Four at a time: the processor compares them at once.
  const std::size_t step = stride_;
  for (; at + 3 * step < end; at += 4 * step) {
    const bool one = is_group(data + at);
    const bool two = is_group(data + at + step);
    const bool three = is_group(data + at + 2 * step);
    const bool four = is_group(data + at + 3 * step);
    if (one | two | three | four) break;
  }
  for (; at < end; at += step) {
    if (is_group(data + at)) return at;
  }
  return kNone;
}

// Calls take(Hit) with each needle in a text, and done() after each group's needles, until it is
// true.
template <class Take, class Done>
void Needles::each(std::string_view text, std::size_t from, Take take, Done done) const {
  for (std::size_t at = from; (at = candidate(text, at)) != kNone; at += stride_) {
    const std::uint16_t group = hash(four_bytes(text.data() + at));
    auto place = places_.begin() + first_[group / 64];
    while (place->group != group) ++place;
    for (; place != places_.end() && place->group == group; ++place) {
      if (at >= from + place->offset && fits(text, at, *place)) {
        take(Hit{at - place->offset, place->needle});
      }
    }
    if (done()) break;
  }
}

std::size_t Needles::in(std::string_view text, std::size_t seen) const {
  std::size_t found = kNone;
  const auto take = [&](Hit hit) {
    if (hit.at + needles_[hit.needle].text.size() > seen) found = std::min(found, hit.needle);
  };
  each(text, 0, take, [] { return false; });
  return found;
}

std::uint64_t Needles::readers_in(std::string_view text, std::uint64_t wanted) const {
  std::uint64_t readers = 0;
  each(
      text, 0, [&](Hit hit) { readers |= std::uint64_t{1} << needles_[hit.needle].reader; },
      [&] { return readers != 0 && (readers & wanted) == wanted; });
  return readers;
}

Needles::Hit Needles::next(std::string_view text, std::size_t from) const {
  Hit first{kNone, 0};
  each(
      text, from, [&](Hit hit) { first = std::min(first, hit); },
      [&] { return first.at != kNone; });
  return first;
}

}  // namespace oddrank::logs

// Calls nest and end, even if events are lost.
#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "trace/read/nesting.hpp"

namespace oddrank::trace::nesting_test {
namespace {

// Events in words as those below: "+2" a call, "-2" a return, ".2" a line, ">2" and "<2" a resume
// and a yield, "^2" throw() into it, "!2" an exception that leaves it, "~0" a gap.
std::vector<Moment> events_of(const std::string& words) {
  constexpr std::string_view kSigns = "+-.><^!~";
  constexpr Kind kKinds[] = {Kind::kCall,  Kind::kReturn, Kind::kLine,   Kind::kResume,
                             Kind::kYield, Kind::kThrow,  Kind::kUnwind, Kind::kGap};
  std::vector<Moment> events;
  std::istringstream from(words);
  char sign = 0;
  for (std::uint32_t code = 0; from >> sign >> code;) {
    const auto kind = static_cast<std::uint8_t>(kKinds[kSigns.find(sign)]);
    events.push_back({100 + events.size(), Place::of(code, sign == '.' ? 12 : kNoPosition, kind)});
  }
  return events;
}

// Writes one word per callback: "+2" opened, "(2" opened because it began earlier, "-2" closed,
// "!2" closed for another reason, "." a line, "~" a gap. Checks that it nests.
class Told final : public CallVisitor {
 public:
  void open(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) override {
    check(tsc);
    EXPECT_EQ(depth, open_.size());
    open_.push_back(code);
    say((why == Why::kCut ? "(" : "+") + std::to_string(code));
  }
  void close(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) override {
    check(tsc);
    ASSERT_EQ(depth + 1, open_.size());
    EXPECT_EQ(code, open_.back());
    open_.pop_back();
    say((why == Why::kEvent ? "-" : why == Why::kEnd ? "]" : "!") + std::to_string(code));
  }
  void line(std::uint64_t tsc, Place place) override {
    check(tsc);
    ASSERT_FALSE(open_.empty());
    EXPECT_EQ(place.code(), open_.back());
    say(".");
  }
  void gap(std::uint64_t tsc) override {
    check(tsc);
    say("~");
  }
  std::string words;
  std::size_t still_open() const { return open_.size(); }
  std::size_t count = 0;

 private:
  void say(const std::string& word) {
    ++count;
    words += (words.empty() ? "" : " ") + word;
  }
  void check(std::uint64_t tsc) {
    EXPECT_GE(tsc, last_);
    last_ = tsc;
  }
  std::vector<std::uint32_t> open_;
  std::uint64_t last_ = 0;
};

std::string told(const std::string& events, std::vector<std::uint32_t> stack) {
  Nesting nesting(events_of(events), std::move(stack));
  Told all;
  while (nesting.visit(all, 3)) {
  }
  EXPECT_EQ(all.still_open(), 0U);
  return all.words;
}

TEST(Nesting, calls_nest_and_end_even_if_events_are_lost) {
  const struct {
    std::string events;
    std::vector<std::uint32_t> stack;
    const char* words;
  } rows[] = {
      {"+1 .1 +2 -2 -1", {}, "+1 . +2 -2 -1"},
      // A return without a call was open at the start of the window.
      {"-3 +4 -4 -2 -1", {}, "(1 (2 (3 -3 +4 -4 -2 -1"},
      // A call that never returns is known from the stack at the end.
      {"-3 +4", {1, 2, 4}, "(1 (2 (3 -3 +4 ]4 ]2 ]1"},
      {"-3", {1, 2}, "(1 (2 (3 -3 ]2 ]1"},
      // A line shows the call that it is in.
      {".7 +8 -8 -7", {}, "(7 . +8 -8 -7"},
      // A process that died between stack and ring has one frame more.
      {"+2", {1, 2, 3}, "(1 +2 ]2 ]1"},
      // Generators are slices from resume to yield, and exceptions end calls.
      {"+1 >2 <2 +3 !3 -1", {}, "+1 +2 -2 +3 !3 -1"},
      // 5 ended behind a gap, without an event; 1 and 2 still run.
      {"+2 +5 ~0 .2 -2", {1}, "(1 +2 +5 ~ !5 . -2 ]1"},
      // A frame that throw() resumes begins there.
      {"+2 ~0 ^9 .9 -9 -2", {1}, "(1 +2 ~ +9 . -9 -2 ]1"},
      // The garbage collector closes many generators of one function.
      {"+2 ~0 ^9 !9 ~0 ^9 !9 -2", {1}, "(1 +2 ~ +9 !9 ~ +9 !9 -2 ]1"},
      // Callers go on while a generator that was thrown into runs between two gaps.
      {"+1 +2 ~0 +3 -3 ~0 .2 -2 -1", {}, "+1 +2 ~ +3 -3 ~ . -2 -1"},
      // 9 can only have begun in the second gap; 2 ended in one of them.
      {"+1 +2 ~0 +3 -3 ~0 .9 -9 -1", {}, "+1 +2 ~ !2 +3 -3 ~ (9 . -9 -1"},
      {"+3 -3 ~0 -2 -1", {}, "(1 (2 +3 -3 ~ -2 -1"},
      // Gaps at the beginning, one after the other, and at the end.
      {"~0 +1 -1", {}, "+1 -1"},
      {"+1 ~0 ~0 -1", {}, "+1 ~ -1"},
      {"+1 -1 ~0", {}, "+1 -1 ~"},
      {"", {1, 2}, ""},
      // Events that contradict each other are as far apart as by a gap.
      {"+1 +2 -7 -1", {}, "+1 +2 ~ !2 (7 -7 -1"},
  };
  for (const auto& row : rows) EXPECT_EQ(told(row.events, row.stack), row.words) << row.events;
}

TEST(Nesting, any_sequence_nests_and_is_told_in_a_bounded_number_of_words) {
  std::minstd_rand random(7);
  for (int run = 0; run < 300; ++run) {
    std::vector<Moment> events;
    std::vector<std::uint32_t> stack;
    for (auto i = random() % 40; i > 0; --i) {
      const auto any = static_cast<std::uint8_t>(random() % 10);
      events.push_back(
          {random() % 1000, Place::of(static_cast<std::uint32_t>(random() % 4), 1, any)});
    }
    for (auto i = random() % 6; i > 0; --i)
      stack.push_back(static_cast<std::uint32_t>(random() % 4));
    const std::size_t most = 4 * events.size() + 2 * stack.size();
    Nesting nesting(std::move(events), stack);
    Told all;
    while (nesting.visit(all, 7)) {
    }
    EXPECT_EQ(all.still_open(), 0U);
    EXPECT_LE(all.count, most);
    if (HasFailure()) FAIL() << "run " << run << ": " << all.words;
  }
}

}  // namespace
}  // namespace oddrank::trace::nesting_test

// Calls nest and end, even if events are lost.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "trace/read/nesting.hpp"

namespace oddrank::trace::nesting_test {
namespace {

constexpr std::uint8_t kind(Kind what) { return static_cast<std::uint8_t>(what); }
Place call(std::uint32_t code) { return Place::of(code, kNoPosition, kind(Kind::kCall)); }
Place back(std::uint32_t code) { return Place::of(code, kNoPosition, kind(Kind::kReturn)); }
Place at(std::uint32_t code) { return Place::of(code, 12, kind(Kind::kLine)); }
Place gap() { return Place::of(0, kNoPosition, kind(Kind::kGap)); }
Place other(std::uint32_t code, Kind what) { return Place::of(code, kNoPosition, kind(what)); }

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

std::string told(const std::vector<Place>& places, std::vector<std::uint32_t> stack) {
  std::vector<Moment> events;
  for (const Place place : places) events.push_back({100 + events.size(), place});
  Nesting nesting(std::move(events), std::move(stack));
  Told all;
  while (nesting.visit(all, 3)) {
  }
  EXPECT_EQ(all.still_open(), 0U);
  return all.words;
}

TEST(Nesting, calls_that_begin_and_end_in_the_window) {
  EXPECT_EQ(told({call(1), at(1), call(2), back(2), back(1)}, {}), "+1 . +2 -2 -1");
}

TEST(Nesting, a_return_without_a_call_was_open_at_the_start_of_the_window) {
  EXPECT_EQ(told({back(3), call(4), back(4), back(2), back(1)}, {}), "(1 (2 (3 -3 +4 -4 -2 -1");
}

TEST(Nesting, a_call_that_never_returns_is_known_from_the_stack_at_the_end) {
  EXPECT_EQ(told({back(3), call(4)}, {1, 2, 4}), "(1 (2 (3 -3 +4 ]4 ]2 ]1");
  EXPECT_EQ(told({back(3)}, {1, 2}), "(1 (2 (3 -3 ]2 ]1");
}

TEST(Nesting, a_line_shows_the_call_that_it_is_in) {
  EXPECT_EQ(told({at(7), call(8), back(8), back(7)}, {}), "(7 . +8 -8 -7");
}

TEST(Nesting, a_process_that_died_between_stack_and_ring_has_one_frame_more) {
  EXPECT_EQ(told({call(2)}, {1, 2, 3}), "(1 +2 ]2 ]1");
}

TEST(Nesting, generators_are_slices_from_resume_to_yield_and_exceptions_end_calls) {
  EXPECT_EQ(told({call(1), other(2, Kind::kResume), other(2, Kind::kYield), call(3),
                  other(3, Kind::kUnwind), back(1)},
                 {}),
            "+1 +2 -2 +3 !3 -1");
}

TEST(Nesting, behind_a_gap_only_what_goes_on_stays_open) {
  // 5 ended without an event; 1 and 2 still run.
  EXPECT_EQ(told({call(2), call(5), gap(), at(2), back(2)}, {1}), "(1 +2 +5 ~ !5 . -2 ]1");
}

TEST(Nesting, a_frame_that_throw_resumes_begins_there) {
  EXPECT_EQ(told({call(2), gap(), other(9, Kind::kThrow), at(9), back(9), back(2)}, {1}),
            "(1 +2 ~ +9 . -9 -2 ]1");
  // The garbage collector closes many generators of one function.
  const Place thrown = other(9, Kind::kThrow);
  const Place closed = other(9, Kind::kUnwind);
  EXPECT_EQ(told({call(2), gap(), thrown, closed, gap(), thrown, closed, back(2)}, {1}),
            "(1 +2 ~ +9 !9 ~ +9 !9 -2 ]1");
}

TEST(Nesting, callers_go_on_while_a_generator_that_was_thrown_into_runs_between_two_gaps) {
  EXPECT_EQ(told({call(1), call(2), gap(), call(3), back(3), gap(), at(2), back(2), back(1)}, {}),
            "+1 +2 ~ +3 -3 ~ . -2 -1");
  // 9 can only have begun in the second gap; 2 ended in one of them.
  EXPECT_EQ(told({call(1), call(2), gap(), call(3), back(3), gap(), at(9), back(9), back(1)}, {}),
            "+1 +2 ~ !2 +3 -3 ~ (9 . -9 -1");
  EXPECT_EQ(told({call(3), back(3), gap(), back(2), back(1)}, {}), "(1 (2 +3 -3 ~ -2 -1");
}

TEST(Nesting, gaps_at_the_beginning_one_after_the_other_and_at_the_end) {
  EXPECT_EQ(told({gap(), call(1), back(1)}, {}), "+1 -1");
  EXPECT_EQ(told({call(1), gap(), gap(), back(1)}, {}), "+1 ~ -1");
  EXPECT_EQ(told({call(1), back(1), gap()}, {}), "+1 -1 ~");
  EXPECT_EQ(told({}, {1, 2}), "");
}

TEST(Nesting, events_that_contradict_each_other_are_as_far_apart_as_by_a_gap) {
  EXPECT_EQ(told({call(1), call(2), back(7), back(1)}, {}), "+1 +2 ~ !2 (7 -7 -1");
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

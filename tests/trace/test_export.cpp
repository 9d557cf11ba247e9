// The exported text: calls nest whatever was lost, and it stays JSON whatever names are made of.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "record_builder.hpp"
#include "trace/read/export.hpp"
#include "trace/read/json_text.hpp"
#include "trace/read/nesting.hpp"

namespace oddrank::trace {
namespace {

constexpr std::uint8_t kind(Kind what) { return static_cast<std::uint8_t>(what); }
Place call(std::uint32_t code) { return Place::of(code, kNoPosition, kind(Kind::kCall)); }
Place back(std::uint32_t code) { return Place::of(code, kNoPosition, kind(Kind::kReturn)); }
Place at(std::uint32_t code) { return Place::of(code, 12, kind(Kind::kLine)); }
Place gap() { return Place::of(0, kNoPosition, kind(Kind::kGap)); }
Place other(std::uint32_t code, Kind what) { return Place::of(code, kNoPosition, kind(what)); }

// What is told, one word each: "+2" opened, "(2" opened since it had begun before, "-2" closed,
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

TEST(Nesting, what_returns_without_a_call_was_open_when_the_window_begins) {
  EXPECT_EQ(told({back(3), call(4), back(4), back(2), back(1)}, {}), "(1 (2 (3 -3 +4 -4 -2 -1");
}

TEST(Nesting, what_never_returns_is_known_from_the_stack_at_the_end) {
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
  // 5 was left without an event; 1 and 2 run on.
  EXPECT_EQ(told({call(2), call(5), gap(), at(2), back(2)}, {1}), "(1 +2 +5 ~ !5 . -2 ]1");
}

TEST(Nesting, a_frame_that_throw_has_resumed_is_open_behind_the_gap) {
  EXPECT_EQ(told({call(2), gap(), other(9, Kind::kThrow), at(9), back(9), back(2)}, {1}),
            "(1 +2 ~ (9 . -9 -2 ]1");
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

std::string escaped(std::string_view bytes, std::size_t most = 1000) {
  std::string to;
  append_escaped(to, bytes, most);
  return to;
}

TEST(JsonText, quotes_control_characters_and_what_is_no_utf8_are_made_harmless) {
  EXPECT_EQ(escaped("a\"b\\c\n\x1b\x01"), "a\\\"b\\\\c\\u000a\\u001b\\u0001");
  EXPECT_EQ(escaped("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"),
            "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80");
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(escaped("a\xFFz"), "a" + bad + "z");
  EXPECT_EQ(escaped("\xC3"), bad);                      // cut
  EXPECT_EQ(escaped("\xC0\xAF"), bad + bad);            // longer than needed
  EXPECT_EQ(escaped("\xED\xA0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(escaped("\xF4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(escaped("abcdef", 3), "abc...");
  EXPECT_EQ(escaped("ab\xC3\xA4", 3), "ab...");
}

TEST(JsonText, nanoseconds_are_microseconds_with_three_digits) {
  const auto us = [](std::int64_t ns) {
    std::string to;
    append_microseconds(to, ns);
    return to;
  };
  EXPECT_EQ(us(1'234'567), "1234.567");
  EXPECT_EQ(us(5), "0.005");
  EXPECT_EQ(us(-1'001), "-1.001");
  EXPECT_EQ(us(INT64_MIN), "-9223372036854775.808");
}

constexpr std::int64_t kOrigin = 1'700'000'000'000'000'000;

std::string exported(const RecordBuilder& record, bool lines = false) {
  Export one(record.open());
  EXPECT_TRUE(one.start({9, kOrigin, 0, lines}));
  std::string all;
  for (std::string chunk = one.chunk(); !chunk.empty(); chunk = one.chunk()) all += chunk;
  return all;
}

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (auto found = text.find(part); found != text.npos; found = text.find(part, found + 1)) {
    ++count;
  }
  return count;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

TEST(Export, a_record_with_something_of_everything) {
  RecordBuilder record;
  fill_record(record);
  for (const Place place : {call(2), back(2)}) record.event(0, 1'000'001'000, place);
  const std::string text = exported(record);
  EXPECT_TRUE(has(text, R"x("name":"process_name","args":{"name":"rank 3 (node1)"})x")) << text;
  EXPECT_TRUE(has(text, R"x({"ph":"B","pid":9,"tid":100,"ts":500000.000,"cat":"call",)x"
                        R"x("name":"Trainer.step","args":{"at":"/home/user/train.py:40"}})x"))
      << text;
  EXPECT_TRUE(has(text, R"x("name":"step 6","args":{"open":)x")) << text;
  EXPECT_TRUE(has(text, R"x("name":"forward","args":{"open":)x")) << text;
  EXPECT_TRUE(has(text, R"x("name":"sections of thread 77")x")) << text;
  EXPECT_TRUE(has(text, R"x("name":"all_reduce #10","args":{"state":"ended")x")) << text;
  EXPECT_TRUE(has(text, R"x("name":"all_reduce #20 (open)")x")) << text;
  EXPECT_EQ(count_of(text, R"x("ph":"B")x"), count_of(text, R"x("ph":"E")x"));
}

TEST(Export, lines_are_instants_and_only_if_asked_for) {
  RecordBuilder record;
  fill_record(record);
  EXPECT_FALSE(has(exported(record), R"x("cat":"line")x"));
  EXPECT_TRUE(has(exported(record, true), R"x("cat":"line","name":"train.py:12"})x"));
}

TEST(Export, odd_names_stay_within_their_quotes_and_unknown_codes_have_a_number) {
  RecordBuilder record;
  fill_record(record);
  record.code(5, "a\"},{\xFF\n", 1, 1);
  record.code(6, std::string(3000, 'x'), 1, 1);
  for (const std::uint32_t code : {5U, 6U, 77U}) {
    record.event(0, 2000, call(code));
    record.event(0, 2001, back(code));
  }
  const std::string text = exported(record);
  EXPECT_TRUE(has(text, "\"name\":\"a\\\"},{\xEF\xBF\xBD\\u000a\"")) << text;
  EXPECT_TRUE(has(text, "\"name\":\"" + std::string(500, 'x') + "...\""));
  EXPECT_TRUE(has(text, "\"name\":\"code 77\""));
}

TEST(Export, overlapping_collectives_of_a_group_get_rows_of_their_own) {
  RecordBuilder record;
  fill_record(record);  // 2 is open
  record.collective(Phase::kBegin, 3).tsc = 9000;
  record.collective(Phase::kEnd, 3).tsc = 12000;
  const std::string text = exported(record);
  EXPECT_TRUE(has(text, "collectives of group default_pg\"")) << text;
  EXPECT_TRUE(has(text, "collectives of group default_pg (2)\"")) << text;
}

TEST(Export, without_a_rate_of_the_counter_it_takes_another_ranks_or_nothing) {
  RecordBuilder record;
  fill_record(record);
  record.header().clocks[1].number = 0;
  Export one(record.open());
  EXPECT_EQ(one.facts().ticks_per_ns, 0);
  EXPECT_FALSE(one.start({9, kOrigin, 0, false}));
  EXPECT_EQ(one.chunk(), "");
  EXPECT_TRUE(one.start({9, kOrigin, 2.0, false}));
  EXPECT_TRUE(has(one.chunk(), "\"ts\":"));
}

TEST(Export, texts_longer_than_a_chunk_come_in_several) {
  RecordSizes sizes;
  sizes.ring_events = 1 << 15;
  RecordBuilder record(sizes);
  fill_record(record);
  for (std::uint64_t i = 0; i < sizes.ring_events / 2; ++i) {
    record.event(0, 3000 + 2 * i, call(2));
    record.event(0, 3001 + 2 * i, back(2));
  }
  Export one(record.open());
  ASSERT_TRUE(one.start({9, kOrigin, 0, false}));
  std::size_t chunks = 0;
  for (std::string chunk = one.chunk(); !chunk.empty(); chunk = one.chunk()) {
    EXPECT_LT(chunk.size(), Export::kChunk * 2);
    EXPECT_EQ(chunk.substr(0, 3), ",\n{");
    EXPECT_EQ(chunk.back(), '}');
    ++chunks;
  }
  EXPECT_GE(chunks, 3U);
  EXPECT_GE(one.events(), std::uint64_t{sizes.ring_events} - 2);
}

}  // namespace
}  // namespace oddrank::trace

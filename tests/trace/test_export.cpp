// The exported text: its events, and that it stays JSON with any names.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "read_everything.hpp"
#include "record_builder.hpp"

namespace oddrank::trace {
namespace {

constexpr std::uint8_t kind(Kind what) { return static_cast<std::uint8_t>(what); }
Place call(std::uint32_t code) { return Place::of(code, kNoPosition, kind(Kind::kCall)); }
Place back(std::uint32_t code) { return Place::of(code, kNoPosition, kind(Kind::kReturn)); }

std::string escaped(std::string_view bytes, std::size_t most = 1000) {
  std::string to;
  append_escaped(to, bytes, most);
  return to;
}

TEST(JsonText, quotes_control_characters_and_what_is_no_utf8_are_made_harmless) {
  const std::string bad = "\xEF\xBF\xBD";
  const std::pair<std::string, std::string> rows[] = {
      {"a\"b\\c\n\x1b\x01", "a\\\"b\\\\c\\u000a\\u001b\\u0001"},
      {"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"},
      {"a\xFFz", "a" + bad + "z"},
      {"\xC3", bad},                      // cut off
      {"\xC0\xAF", bad + bad},            // overlong
      {"\xED\xA0\x80", bad + bad + bad},  // a surrogate
      {"\xF4\x90\x80\x80", bad + bad + bad + bad}};
  for (const auto& [text, harmless] : rows) EXPECT_EQ(escaped(text), harmless);
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
  EXPECT_TRUE(one.start({9, kOrigin, {}, lines, {{"allreduce", "all_reduce"}}}));
  return rest_of(one);
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
  FullRecord record;
  for (const Place place : {call(2), back(2)}) record.event(0, 1'000'001'000, place);
  const std::string text = exported(record);
  for (const char* part :
       {R"x("name":"process_name","args":{"name":"rank 3 (node1)"})x",
        R"x({"ph":"B","pid":9,"tid":100,"ts":500000.000,"cat":"call",)x"
        R"x("name":"Trainer.step","args":{"at":"/home/user/train.py:40"}})x",
        R"x("name":"step 6","args":{"open":)x", R"x("name":"forward","args":{"open":)x",
        R"x("name":"sections of thread 77")x",
        R"x("name":"all_reduce 10","args":{"state":"ended")x",
        R"x("name":"all_reduce 20 (open)")x"}) {
    EXPECT_TRUE(has(text, part)) << part << " is not in " << text;
  }
  EXPECT_EQ(count_of(text, R"x("ph":"B")x"), count_of(text, R"x("ph":"E")x"));
  EXPECT_FALSE(has(text, R"x("cat":"line")x"));
  EXPECT_TRUE(has(exported(record, true), R"x("cat":"line","name":"train.py:12"})x"));
}

TEST(Export, odd_names_stay_within_their_quotes_and_unknown_codes_have_a_number) {
  FullRecord record;
  record.code(5, "a\"},{\xFF\n", 1, 1);
  record.code(6, std::string(3000, 'x'), 1, 1);
  for (const std::uint32_t code : {5U, 6U, 77U}) {
    record.event(0, 2000, call(code));
    record.event(0, 2001, back(code));
  }
  record.thread(1, "th\"read\n", {});
  record.mark(MarkKind::kSectionBegin, 9, "sec\"tion");
  const std::string text = exported(record);
  EXPECT_TRUE(has(text, "\"th\\\"read\\u000a\"")) << text;
  EXPECT_TRUE(has(text, "\"name\":\"sec\\\"tion\""));
  EXPECT_TRUE(has(text, "\"name\":\"a\\\"},{\xEF\xBF\xBD\\u000a\"")) << text;
  EXPECT_TRUE(has(text, "\"name\":\"" + std::string(500, 'x') + "...\""));
  EXPECT_TRUE(has(text, "\"name\":\"code 77\""));
}

TEST(Export, what_overlaps_gets_a_row_of_its_own) {
  FullRecord record;  // collective 2 and "forward" are open
  record.collective(Phase::kBegin, 3).tsc = 9000;
  record.collective(Phase::kEnd, 3).tsc = 12000;
  record.mark(MarkKind::kSectionBegin, 2, "inner");
  record.mark(MarkKind::kSectionEnd, 2, "inner");
  const std::string text = exported(record);
  EXPECT_TRUE(has(text, "collectives of some text\"")) << text;
  EXPECT_TRUE(has(text, "collectives of some text (2)\"")) << text;
  EXPECT_FALSE(has(text, "sections of thread 77 (2)")) << "a section within another";
  record.mark(MarkKind::kSectionBegin, 3, "crossing");
  record.mark(MarkKind::kSectionEnd, 1, "forward");
  EXPECT_TRUE(has(exported(record), "sections of thread 77 (2)"));
}

TEST(Export, calls_too_deep_and_slices_without_a_row_are_left_out_and_reported) {
  FullRecord record({.ring_events = 2048, .collectives = 64});
  for (std::uint64_t i = 0; i < 600; ++i) record.event(2, 2000 + i, call(2));
  for (std::uint64_t i = 0; i < 600; ++i) record.event(2, 3000 + i, back(2));
  for (std::uint64_t i = 3; i < 43; ++i) record.collective(Phase::kBegin, i);
  record.mark(MarkKind::kMark, 0, "the end").tsc = 9000;
  Export one(record.open());
  ASSERT_TRUE(one.start({9, kOrigin, {}, false}));
  EXPECT_EQ(one.trouble().find("9 calls or slices"), 0U) << one.trouble();  // 41 are open
  const std::string text = rest_of(one);
  EXPECT_EQ(count_of(text, R"x("ph":"B")x"), count_of(text, R"x("ph":"E")x"));
  EXPECT_EQ(one.trouble().find("98 calls or slices"), 0U) << one.trouble();  // 1 + 600 deep
}

TEST(Export, ranks_of_a_boot_are_told_by_one_clock_or_not_at_all) {
  FullRecord record;
  const std::vector<ClockPicture> all = {{1'000, 0, kOrigin}, {5'000, 1'000, kOrigin + 1'000}};
  Export one(record.open());
  EXPECT_EQ(clock_of(record.open()).begin(), kOrigin);
  EXPECT_EQ(clock_pictures(record.open()).size(), 2U);
  ASSERT_TRUE(one.start({9, kOrigin, all, false}));  // 4 ticks per ns; its own clock has 2
  EXPECT_TRUE(has(one.chunk(), R"x("ts":1.000,"dur":0.000,"name":"allreduce 10")x"));
  record.header().clocks[1].number = 0;
  Export other(record.open());
  EXPECT_FALSE(other.start({9, kOrigin, {}, false}));
  EXPECT_EQ(other.chunk(), "");
  EXPECT_TRUE(other.start({9, kOrigin, all, false}));
  EXPECT_TRUE(has(other.chunk(), "\"ts\":"));
}

TEST(Export, texts_longer_than_a_chunk_come_in_several) {
  constexpr RecordSizes sizes{.ring_events = 1 << 15};
  FullRecord record(sizes);
  for (std::uint64_t i = 0; i < sizes.ring_events / 2; ++i) {
    record.event(0, 3000 + 2 * i, call(2));
    record.event(0, 3001 + 2 * i, back(2));
  }
  Export one(record.open());
  ASSERT_TRUE(one.start({9, kOrigin, {}, false}));
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

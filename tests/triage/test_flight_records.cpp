// Pickles and JSON become values within bounds; dumps of several ranks are compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../in_folder.hpp"
#include "os/error.hpp"
#include "triage/flight_match.hpp"
#include "triage/values.hpp"

namespace {

using oddrank::Builder;
using oddrank::Error;
using oddrank::FlightFile;
using oddrank::FlightRecords;
using oddrank::Kind;
using oddrank::read_flight_records;
using oddrank::Value;
using oddrank::Visits;
using oddrank::Word;
using oddrank::operator""_word;
using namespace std::string_literals;
using namespace std::string_view_literals;

Value pickle(std::string_view bytes, Builder& builder) {
  builder.begin(nullptr);
  return oddrank::read_pickle(bytes, builder);
}

Value json(std::string_view text, Builder& builder) {
  builder.begin(nullptr);
  return oddrank::read_json(text, builder);
}

std::vector<Value> elements(const Value& list) {
  std::vector<Value> found;
  Visits visits = Visits::of_input(0);
  oddrank::for_each(list, visits, [&](const Value& each) {
    found.push_back(each);
    return found.size() < 10;
  });
  return found;
}

// The numbers of a list; -1: another value.
std::vector<std::int64_t> numbers(const Value& list) {
  std::vector<std::int64_t> found;
  for (const Value& each : elements(list)) {
    found.push_back(each.is(Kind::integer) ? each.integer : -1);
  }
  return found;
}

TEST(Pickle, NumbersOfAllWidthsAreReadAndThosePast64BitsBecomeTheNearestThatFits) {
  Builder builder;
  for (const auto& [bytes, value] :
       std::initializer_list<std::pair<std::string_view, std::int64_t>>{
           {"K\xff."sv, 255},
           {"J\xff\xff\xff\xff."sv, -1},
           {"\x8a\x02\xff\x7f."sv, 32767},
           {"\x8a\x01\x80."sv, -128},
           {"\x8a\x00."sv, 0},
           {"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."sv, INT64_MAX},
           {"\x8a\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff."sv, INT64_MIN}}) {
    EXPECT_EQ(pickle(bytes, builder).integer, value) << bytes;
  }
  EXPECT_EQ(pickle("G\x3f\xf8\x00\x00\x00\x00\x00\x00."sv, builder).real, 1.5);
}

TEST(Pickle, AListThatHoldsItselfIsNoLoopForItsReader) {
  Builder builder;
  const Value list = pickle("]q\x00h\x00\x61."sv, builder);
  ASSERT_TRUE(list.is(Kind::list));
  EXPECT_LE(elements(list).size(), 1U);
}

class TakesAll final : public oddrank::DictSink {
 public:
  Taken take(std::span<const Value>) override { return Taken::yes; }
};

TEST(Pickle, WhatATakenDictAppendedToAnOlderListLivesOn) {
  Builder builder;
  TakesAll sink;
  builder.begin(&sink);
  // A list; a dict in whose value 7 and 8 are appended to it; and a new list in the freed memory.
  const Value list =
      oddrank::read_pickle("]q\x00(}(K\x01h\x00(K\x07K\x08\x65u](K!K\"\x65\x65."sv, builder);
  EXPECT_EQ(numbers(list), (std::vector<std::int64_t>{7, 8, -1, -1}));
}

// Takes each dict, and keeps the value of the first.
class KeepsFirst final : public oddrank::DictSink {
 public:
  Taken take(std::span<const Value> pairs) override {
    if (kept.is(Kind::list)) return Taken::yes;
    kept = pairs[1];
    return Taken::kept;
  }
  Value kept;
};

TEST(Pickle, WhatIsKeptOutlivesTheDictAroundIt) {
  Builder builder;
  KeepsFirst sink;
  builder.begin(&sink);
  // A dict in a dict: of the inner one the list of 7 is kept, the outer one is given back.
  oddrank::read_pickle("](}(K\x01}(K\x02](K\x07\x65uu](K!K\"\x65\x65."sv, builder);
  EXPECT_EQ(numbers(sink.kept), (std::vector<std::int64_t>{7}));
}

TEST(Pickle, ListsOfTheSameBytesAreEqualAndDoNotGrowTogether) {
  Builder builder;
  // Dicts of a list: twice [1, 300], once [1, 300, 2] in two parts, and [1, 300] again.
  const std::string key = "h"s + '\0';
  const std::string list = "](K\x01M\x2c\x01\x65";
  std::string bytes = "N"s + "q" + '\0' + "(";
  for (const std::string& more : {""s, ""s, "(K\x02\x65"s, ""s}) {
    bytes += "}(" + key + list + more + "u";
  }
  bytes += std::string(64, 'N') + "t\x86.";
  const std::vector<Value> found = elements(elements(pickle(bytes, builder))[1]);
  ASSERT_GE(found.size(), 4U);
  const auto list_of = [](const Value& dict) { return numbers(elements(dict).at(1)); };
  EXPECT_EQ(list_of(found[0]), (std::vector<std::int64_t>{1, 300}));
  EXPECT_EQ(list_of(found[1]), (std::vector<std::int64_t>{1, 300}));
  EXPECT_EQ(list_of(found[2]), (std::vector<std::int64_t>{1, 300, 2}));
  EXPECT_EQ(list_of(found[3]), (std::vector<std::int64_t>{1, 300}));
}

TEST(Pickle, WhatIsBelowAMarkCannotBeReached) {
  Builder builder;
  EXPECT_NO_THROW(pickle("](e."sv, builder));
  for (const std::string_view bytes : {"](Na."sv, "}(NNs."sv, "N(\x85."sv, "(u."sv, "](q\x00."sv}) {
    EXPECT_THROW(pickle(bytes, builder), Error) << bytes;
  }
}

TEST(Json, TextsAreDecodedAndNumbersKeepTheirKind) {
  Builder builder;
  const std::vector<Value> values =
      elements(json(R"( [1, -2.5, "a\u20ac\ud83d\ude00\n", true, null, 1e400] )", builder));
  ASSERT_EQ(values.size(), 6U);
  EXPECT_EQ(values[0].integer, 1);
  EXPECT_EQ(values[1].real, -2.5);
  EXPECT_EQ(values[2].string(), "a\u20ac\U0001F600\n");
  EXPECT_TRUE(values[3].is(Kind::boolean));
  EXPECT_TRUE(values[4].is(Kind::none));
}

TEST(Json, WhatIsNoJsonIsRefused) {
  Builder builder;
  for (const char* text : {"", "{", "[1 2]", "{\"a\" 1}", "{a: 1}", "tru", "[1]]", "\"\\u12\"",
                           "{\"a\": 1,}", "nul", "-"}) {
    EXPECT_THROW(json(text, builder), Error) << text;
  }
}

TEST(Words, EachWordIsFoundAndNothingElse) {
  EXPECT_EQ(oddrank::word_of("pg_config"), "pg_config"_word);
  EXPECT_EQ(oddrank::word_of("last_completed_collective"), "last_completed_collective"_word);
  EXPECT_EQ(oddrank::word_of("pg_confih"), Word::other);
  EXPECT_EQ(oddrank::word_of(""), Word::other);
  EXPECT_EQ(oddrank::word_of(std::string(500, 'x')), Word::other);
}

// A dump in JSON of calls that are over, and an open one, of the default group of three ranks.
std::string steps(int count, const std::string& last) {
  std::string text =
      R"({"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1, 2]"}},)"
      R"("entries":[)";
  for (int seq = 1; seq <= count + 1; ++seq) {
    const std::string number = std::to_string(seq), op = seq % 3 == 0 ? "broadcast" : "all_reduce";
    text += std::string(seq > 1 ? "," : "") + R"({"record_id":)" + number +
            R"(,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":)" + number +
            R"(,"p2p_seq_id":0,"op_id":)" + number + R"(,"profiling_name":"nccl:)" +
            (seq > count ? last : op) + R"(","input_sizes":[[8,4]],"input_dtypes":["Float"],)" +
            R"("output_sizes":[[8,4]],"output_dtypes":["Float"],"state":")" +
            (seq > count ? "scheduled" : "completed") + R"(","is_p2p":false})";
  }
  return text + "]}";
}

class RecordFiles : public oddrank::InFolder {
 public:
  void SetUp() override {
    for (int i = 0; i < 64; ++i) {
      const std::string path = this->path("_dump_" + std::to_string(i));
      std::ofstream(path) << steps(40 + i % 3, "broadcast");
      files_.push_back({path, i % 3, i});
    }
    files_.push_back({path("gone"), 3, 0});
  }

 protected:
  std::vector<FlightFile> files_;
};

// Also run under the thread sanitizer.
TEST_F(RecordFiles, SeveralThreadsFindTheSameAsOne) {
  const FlightRecords one = read_flight_records(files_, 1);
  const FlightRecords four = read_flight_records(files_, 4);
  EXPECT_EQ(one.ranks, four.ranks);
  ASSERT_EQ(one.dumps.size(), four.dumps.size());
  std::size_t used = 0;
  for (std::size_t i = 0; i < one.dumps.size(); ++i) {
    EXPECT_EQ(one.dumps[i].notes, four.dumps[i].notes);
    ASSERT_EQ(one.dumps[i].tracks.size(), four.dumps[i].tracks.size());
    for (std::size_t k = 0; k < one.dumps[i].tracks.size(); ++k) {
      ++used;
      EXPECT_EQ(one.dumps[i].tracks[k].enqueued, four.dumps[i].tracks[k].enqueued);
      EXPECT_EQ(one.dumps[i].tracks[k].open.size(), four.dumps[i].tracks[k].open.size());
    }
  }
  EXPECT_EQ(used, 3U);
  EXPECT_EQ(one.dumps.back().notes.size(), 1U);
  ASSERT_EQ(one.mismatches.size(), 1U);
  ASSERT_EQ(four.mismatches.size(), 1U);
  EXPECT_EQ(one.mismatches[0].seq, four.mismatches[0].seq);
}

}  // namespace

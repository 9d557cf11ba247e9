// Pickles and JSON become values within bounds; dumps of several ranks are compared.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/error.hpp"
#include "triage/flight_json.hpp"
#include "triage/flight_match.hpp"
#include "triage/flight_pickle.hpp"
#include "triage/values.hpp"

namespace {

using oddrank::Builder;
using oddrank::CallState;
using oddrank::Differs;
using oddrank::Error;
using oddrank::FlightFile;
using oddrank::FlightRecords;
using oddrank::FlightTrack;
using oddrank::Kind;
using oddrank::read_flight_records;
using oddrank::Value;
using oddrank::Visits;
using oddrank::Word;
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
           {"L-12L\n."sv, -12},
           {"I7\n."sv, 7},
           {"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."sv, INT64_MAX},
           {"\x8a\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff."sv, INT64_MIN},
           {"L99999999999999999999L\n."sv, INT64_MAX}}) {
    EXPECT_EQ(pickle(bytes, builder).integer, value) << bytes;
  }
  EXPECT_EQ(pickle("F1.5\n.", builder).real, 1.5);
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
  EXPECT_EQ(oddrank::word_of("pg_config"), Word::pg_config);
  EXPECT_EQ(oddrank::word_of("time_discovered_completed_ns"), Word::time_completed);
  EXPECT_EQ(oddrank::word_of("pg_confih"), Word::other);
  EXPECT_EQ(oddrank::word_of(""), Word::other);
  EXPECT_EQ(oddrank::word_of(std::string(500, 'x')), Word::other);
}

// An entry of a dump in JSON, of the default group of two ranks.
std::string entry(int seq, const std::string& op, const std::string& state = "scheduled",
                  const std::string& sizes = "[[8,4]]", const std::string& dtype = "Float") {
  const std::string number = std::to_string(seq);
  return R"({"record_id":)" + number + R"(,"pg_id":0,"process_group":["0","default_pg"],)" +
         R"("collective_seq_id":)" + number + R"(,"p2p_seq_id":0,"op_id":)" + number +
         R"(,"profiling_name":"nccl:)" + op + R"(","time_created_ns":)" +
         std::to_string(1'700'000'000'000 + seq) + R"(,"input_sizes":)" + sizes +
         R"(,"input_dtypes":[")" + dtype + R"("],"output_sizes":)" + sizes +
         R"(,"output_dtypes":[")" + dtype + R"("],"state":")" + state + R"(","is_p2p":false})";
}

std::string dump(const std::vector<std::string>& entries) {
  std::string text =
      R"({"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1, 2]"}},)"
      R"("entries":[)";
  for (std::size_t i = 0; i < entries.size(); ++i) text += (i != 0 ? "," : "") + entries[i];
  return text + "]}";
}

FlightRecords compared(const std::vector<std::string>& texts) {
  std::vector<FlightFile> files;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    files.push_back({"dump", static_cast<std::int64_t>(i), 0});
  }
  return read_flight_records(files, texts);
}

std::string steps(int count, const std::string& last) {
  std::vector<std::string> entries;
  for (int seq = 1; seq <= count; ++seq) {
    entries.push_back(entry(seq, seq % 3 == 0 ? "broadcast" : "all_reduce", "completed"));
  }
  entries.push_back(last);
  return dump(entries);
}

TEST(Records, TheFirstDifferenceOfAGroupIsFoundWithWhoIssuedWhat) {
  const std::string usual = steps(12, entry(13, "all_reduce"));
  const std::string odd = steps(12, entry(13, "broadcast"));
  const FlightRecords records = compared({usual, odd, usual});
  ASSERT_EQ(records.mismatches.size(), 1U);
  const auto& mismatch = records.mismatches.front();
  EXPECT_EQ(mismatch.seq, 13);
  EXPECT_EQ(mismatch.differs, Differs::op);
  ASSERT_EQ(mismatch.variants.size(), 2U);
  EXPECT_EQ(mismatch.variants[0].ranks, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(mismatch.variants[1].ranks, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(mismatch.variants[1].call.op, "broadcast");
}

TEST(Records, TheHistoryOfAGroupSaysWhichOfTwoCallsIsUsual) {
  const FlightRecords records =
      compared({steps(12, entry(13, "broadcast")), steps(12, entry(13, "all_reduce"))});
  ASSERT_EQ(records.mismatches.size(), 1U);
  for (const auto& variant : records.mismatches.front().variants) {
    EXPECT_EQ(variant.usual, variant.call.op == "all_reduce" ? 1 : 0);
  }
}

TEST(Records, SizesAndDtypesAreComparedByWhatMattersToTheOperation) {
  struct Case {
    std::string op, sizes, dtype;
    bool differs;
    Differs in;
  };
  for (const Case& each : {
           Case{"all_reduce", "[[8,8]]", "Float", true, Differs::sizes},
           Case{"all_reduce", "[[4,8]]", "Float", false, Differs::sizes},
           Case{"all_reduce", "[[8,4]]", "Half", true, Differs::dtype},
           Case{"all_to_all", "[[9,9]]", "Float", false, Differs::sizes},
           Case{"all_to_all", "[[9,9]]", "Half", true, Differs::dtype},
           Case{"barrier", "[[1]]", "Half", false, Differs::dtype},
           Case{"all_gather_v", "[[7]]", "Float", false, Differs::sizes},
           Case{"coalesced", "[]", "Float", false, Differs::sizes},
       }) {
    const FlightRecords records =
        compared({dump({entry(1, each.op)}),
                  dump({entry(1, each.op, "scheduled", each.sizes, each.dtype)})});
    ASSERT_EQ(records.mismatches.size(), each.differs ? 1U : 0U) << each.op << each.sizes;
    if (each.differs) {
      EXPECT_EQ(records.mismatches.front().differs, each.in) << each.op;
    }
  }
}

TEST(Records, OnlyTheSameCallsOfTwoRanksAreCompared) {
  const std::string reduce = entry(1, "all_reduce"),
                    filled = entry(1, "coalesced", "scheduled", "[]");
  const FlightRecords records = compared({dump({reduce, entry(2, "broadcast")}),
                                          dump({entry(1, "broadcast"), entry(2, "all_reduce")})});
  ASSERT_EQ(records.mismatches.size(), 1U);
  EXPECT_EQ(records.mismatches.front().differs, Differs::order);
  EXPECT_TRUE(compared({dump({reduce}), dump({entry(2, "broadcast")})}).mismatches.empty());
  // A coalesced group that is being filled is no difference.
  EXPECT_TRUE(compared({dump({filled}), dump({reduce})}).mismatches.empty());
}

TEST(Records, OpenCallsAreBoundedAndCounted) {
  std::vector<std::string> entries;
  for (int seq = 1; seq <= 50; ++seq) entries.push_back(entry(seq, "all_reduce"));
  const FlightRecords records = compared({dump(entries)});
  const FlightTrack& track = records.dumps.front().tracks.front();
  EXPECT_EQ(track.open.size(), FlightTrack::kMostOpen);
  EXPECT_EQ(track.open.front().seq, 1);
  EXPECT_EQ(track.open_count, 50U);
  EXPECT_EQ(track.enqueued, 50);
  EXPECT_EQ(track.completed, 0);
}

// What is open at the end of a coalesced group is excused, on whichever side.
TEST(Records, WhoIsStillInsideACoalescedGroupIsNotOddInAnyOrderOfFiles) {
  const std::string inside = dump({entry(1, "all_reduce")});
  const std::string beyond =
      dump({entry(1, "coalesced", "scheduled", "[]"), entry(2, "all_reduce")});
  EXPECT_TRUE(compared({inside, beyond}).mismatches.empty());
  EXPECT_TRUE(compared({beyond, inside}).mismatches.empty());
  // Whoever went on without a coalesced group has issued another call.
  const std::string other = dump({entry(1, "all_reduce"), entry(2, "all_reduce")});
  EXPECT_EQ(compared({other, beyond}).mismatches.size(), 1U);
  EXPECT_EQ(compared({beyond, other}).mismatches.size(), 1U);
}

TEST(Records, AnUnknownDtypeHidesNoDifferenceInAnyOrderOfFiles) {
  std::vector<std::string> texts;
  for (const char* dtype : {"", "Float", "Half"}) {
    texts.push_back(dump({entry(1, "all_reduce", "scheduled", "[[8,4]]", dtype)}));
  }
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(compared(texts).mismatches.size(), 1U) << turn;
    std::rotate(texts.begin(), texts.begin() + 1, texts.end());
  }
}

// Files in a folder that goes with its test.
class RecordFiles : public testing::Test {
 public:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "dumps-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    for (int i = 0; i < 64; ++i) {
      const std::string path = folder_ + "/_dump_" + std::to_string(i);
      std::ofstream(path) << steps(40 + i % 3, entry(41 + i % 3, "broadcast"));
      files_.push_back({path, i % 3, i});
    }
    files_.push_back({folder_ + "/gone", 3, 0});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

 protected:
  std::string folder_;
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

// The dictionary: whole entries are read; a broken one ends it and is reported.
#include <gtest/gtest.h>

#include <algorithm>

#include "../words.hpp"
#include "record_builder.hpp"
#include "trace/read/dictionary.hpp"

namespace oddrank::trace {
namespace {

void expect_broken(const Dictionary& dictionary, std::size_t entries, std::string_view why) {
  EXPECT_EQ(dictionary.entries(), entries);
  EXPECT_NE(dictionary.broken().find(why), std::string::npos) << dictionary.broken();
}

TEST(ReadDictionary, an_id_that_is_not_there_is_nothing) {
  FullRecord record;
  record.code(9, "far", 12345, 1);
  const Dictionary dictionary(record.open());
  for (const std::uint32_t id : {0U, 3U, ~0U}) EXPECT_EQ(dictionary.code(id), nullptr) << id;
  EXPECT_EQ(dictionary.group(2), nullptr);
  EXPECT_EQ(dictionary.group_name(2), "");
  ASSERT_NE(dictionary.code(9), nullptr);
  EXPECT_EQ(dictionary.code(9)->file, "") << "names a file that the dictionary lacks";
}

TEST(ReadDictionary, a_group_that_no_writer_makes_is_refused) {
  const auto is_refused = [](std::vector<RankRun> runs, std::size_t at, std::uint32_t value,
                             std::size_t bytes = 1000) {
    RecordBuilder record;
    const char* entry = reinterpret_cast<const char*>(&record.group(1, "name", runs) + 1);
    std::string rest(entry, sizeof(GroupEntry) + runs.size() * sizeof(RankRun) + 4 + 4 + 9);
    std::memcpy(rest.data() + at, &value, sizeof value);
    RecordBuilder changed;
    changed.entry(EntryKind::kGroup, 1, std::string_view(rest).substr(0, bytes));
    return Dictionary(changed.open()).broken() != "";
  };
  constexpr std::size_t kSize = offsetof(GroupEntry, size), kRun = sizeof(GroupEntry);
  const struct {
    std::size_t at;
    std::uint32_t value;
    bool refused = true;
    std::size_t bytes = 1000;
  } rows[] = {{offsetof(GroupEntry, own), 1, false},
              {kRun + offsetof(RankRun, step), 0},  // a rank twice
              {0, 2, true, sizeof(GroupEntry) - 1},
              {0, 2, true, sizeof(GroupEntry) + 3},
              {kSize, 3},
              {offsetof(GroupEntry, runs), ~0U},
              {offsetof(GroupEntry, runs), kMostRuns},
              {offsetof(GroupEntry, name), 100},
              {offsetof(GroupEntry, backend), ~0U},
              {kRun + offsetof(RankRun, first), ~0U},
              {kRun + offsetof(RankRun, step), kMostRanks},
              {kRun + offsetof(RankRun, count), 0},
              {kRun + offsetof(RankRun, count), ~0U}};
  for (const auto& row : rows) {
    EXPECT_EQ(is_refused({{2, 1, 2}}, row.at, row.value, row.bytes), row.refused)
        << row.at << " " << row.value;
  }
  // Otherwise a file of 13 KB could make its reader build a list of 2^30 ranks.
  const RankRun all{0, 1, kMostRanks};
  EXPECT_FALSE(is_refused({all}, kSize, kMostRanks));
  EXPECT_FALSE(is_refused({}, kSize, kMostRanks));
  EXPECT_TRUE(is_refused({}, kSize, kMostRanks + 1));
  EXPECT_TRUE(is_refused({all, all}, kSize, 2 * kMostRanks));
}

TEST(ReadDictionary, ids_may_come_in_any_order_and_the_first_counts) {
  RecordBuilder record;
  for (const std::uint32_t id : {7U, 3U, 5U, 3U, 1U}) {
    record.entry(EntryKind::kText, id, "text " + std::to_string(record.header().dictionary_head));
  }
  const Dictionary dictionary(record.open());
  EXPECT_EQ(dictionary.text(7), "text 0");
  EXPECT_EQ(dictionary.text(3), "text 40");
  EXPECT_EQ(dictionary.text(1), "text 160");
}

TEST(ReadDictionary, outlives_its_file) {
  auto record = std::make_unique<RecordBuilder>();
  fill_record(*record);
  Dictionary dictionary(record->open());
  record.reset();
  const Dictionary moved = std::move(dictionary);
  EXPECT_EQ(moved.code(2)->file, "/home/user/train.py");
}

TEST(ReadDictionary, ends_at_the_first_broken_entry_and_keeps_those_before) {
  const auto broken = [](auto change, std::string_view why) {
    RecordBuilder record;
    record.entry(EntryKind::kText, 1, "good");
    change(record.entry(EntryKind::kText, 2, "is changed"));
    record.entry(EntryKind::kText, 3, "good, and not reached");
    const Dictionary dictionary(record.open());
    expect_broken(dictionary, 1, why);
    EXPECT_EQ(dictionary.text(1), "good");
    EXPECT_EQ(dictionary.text(3), "");
  };
  broken([](EntryHead& e) { ++e.crc; }, "wrong checksum");
  broken([](EntryHead& e) { ++*reinterpret_cast<char*>(&e + 1); }, "wrong checksum");
  broken([](EntryHead& e) { e.size = 0; }, "not written yet");
  broken([](EntryHead& e) { e.size += 4; }, "contradict");
  broken([](EntryHead& e) { e.size += 8; }, "contradict");
  broken([](EntryHead& e) { e.size = 8; }, "contradict");
  broken([](EntryHead& e) { e.size = ~std::uint64_t{7}; }, "longer than what is left");
  broken([](EntryHead& e) { e.size = 4096; }, "longer than what is left");
  broken([](EntryHead& e) { e.bytes = ~0U; }, "contradict");
  broken([](EntryHead& e) { e.bytes += 8; }, "contradict");
  broken([](EntryHead& e) { e.kind = 99; }, "unknown kind");
  broken([](EntryHead& e) { e.id = 0; }, "no id");
  broken([](EntryHead& e) { e.kind = 2; }, "cut");
  RecordBuilder record;
  const CodeEntry code{1, 0, 5, 0};  // with a line table longer than the entry
  std::string rest(reinterpret_cast<const char*>(&code), sizeof code);
  record.entry(EntryKind::kCode, 1, rest + "name");
  expect_broken(Dictionary(record.open()), 0, "line table");
}

TEST(ReadDictionary, a_head_beyond_the_region_or_inside_an_entry_is_no_trap) {
  FullRecord record;
  const std::uint64_t good = record.header().dictionary_head;
  record.header().dictionary_head = ~std::uint64_t{0};
  expect_broken(Dictionary(record.open()), 5, "not written yet");
  for (std::uint64_t head = 0; head < good; ++head) {
    record.header().dictionary_head = head;
    const Dictionary dictionary(record.open());
    EXPECT_LT(dictionary.entries(), 5U);
  }
}

TEST(ReadDictionary, entries_across_the_borders_of_chunks_are_whole) {
  RecordBuilder record({.dictionary = 2 << 20});
  std::uint32_t id = 0;
  for (const std::size_t size : {1000U, 70'000U, 300'001U, 5U, 262'144U, 400'000U, 3U}) {
    ++id;
    record.entry(EntryKind::kText, id, std::string(size, static_cast<char>('a' + id)));
  }
  while (record.header().dictionary_head < (2 << 20) - 2000) {
    ++id;
    record.entry(EntryKind::kText, id, std::string(id % 1500, 'z'));
  }
  const Dictionary dictionary(record.open());
  EXPECT_EQ(dictionary.broken(), "");
  EXPECT_EQ(dictionary.entries(), id);
  EXPECT_EQ(dictionary.text(3), std::string(4096, 'd')) << "longer than a writer's name is";
  EXPECT_EQ(dictionary.text(id), std::string(id % 1500, 'z'));
}

}  // namespace
}  // namespace oddrank::trace

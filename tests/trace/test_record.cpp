// What the recorder writes is in the file: events, stacks, names, and how far collectives have
// come.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../words.hpp"
#include "recording.hpp"
#include "trace/format/format.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/records.hpp"

namespace oddrank::trace::record_test {
namespace {

thread_local bool out_of_memory = false;

constexpr auto kOffsetLine =
    static_cast<std::uint8_t>(static_cast<std::uint8_t>(Kind::kLine) | kIsOffset);

Place line(std::uint32_t code, std::uint32_t position) {
  return Place::of(code, position, static_cast<std::uint8_t>(Kind::kLine));
}

struct Record : Recording {
  using Recording::Recording;
  std::vector<Place> stack(std::uint32_t i) const {
    std::vector<Place> places;
    const std::uint64_t depth = std::min<std::uint64_t>(slot(i).depth, slot(i).stack_room);
    for (std::uint64_t at = 0; at < depth; ++at) places.push_back({slot(i).stack()[at].load()});
    return places;
  }
};

TEST(Layout, RegionsLieOneAfterTheOtherInsideTheFile) {
  for (const std::size_t bytes : {kFewestBytes, kChildBytes, kRankBytes, std::size_t{64} << 20,
                                  std::size_t{5'000'001}, std::size_t{1}}) {
    Header header{};
    share_out(header, bytes);
    EXPECT_GE(header.size, kFewestBytes);
    std::uint64_t end = kPage;
    for (const Region& region : {header.dictionary, header.threads, header.open, header.groups,
                                 header.marks, header.collectives, header.timed, header.rings}) {
      if (region.stride == sizeof(CollectiveSlot) && region.count == 0) continue;  // a small file
      EXPECT_GE(region.offset, end);
      EXPECT_EQ(region.offset % 64, 0U);
      EXPECT_GT(region.count, 0U);
      end = region.offset + region.bytes();
    }
    EXPECT_LE(end, header.size);
    EXPECT_GE(header.rings.count, first_ring_blocks(header) + 4);
  }
}

TEST(Place, KeepsCodePositionAndKind) {
  const Place place = Place::of(0xFFFFFFFE, 0x123456, kOffsetLine);
  EXPECT_EQ(place.code(), 0xFFFFFFFE);
  EXPECT_EQ(place.position(), 0x123456U);
  EXPECT_EQ(place.kind(), Kind::kLine);
  EXPECT_TRUE(place.is_offset());
  EXPECT_EQ(line(1, 1 << 30).position(), kNoPosition);
  EXPECT_FALSE(line(1, 7).is_offset());
}

TEST(ThreadRecorder, KeepsTheLastEventsInOrder) {
  Record record;
  ThreadRecorder* thread = record->add_thread(1, 2, "main");
  const std::uint32_t room = record.slot(0).ring_events;
  ASSERT_EQ(room, 65'536U);
  for (std::uint32_t i = 0; i < room + 10; ++i) thread->append(line(1, i));
  EXPECT_EQ(record.slot(0).head, room + 10);
  const auto* ring = record.at<Event>(record.slot(0).ring_offset);
  for (std::uint32_t i = 10; i < room + 10; ++i) {
    ASSERT_EQ(ring[i % room].place, line(1, i).bits);
  }
  EXPECT_GT(ring[9].tsc, ring[10].tsc);
  EXPECT_EQ(record.header().clocks[1].number % 2, 0U) << "clocks are read on the way";
  EXPECT_GT(record.header().clocks[1].monotonic_ns, record.header().clocks[0].monotonic_ns);
}

TEST(ThreadRecorder, ItsStackFollowsTheFramesAndBelowItsRoomTheInnermostIsStillRight) {
  Record record;
  ThreadRecorder* thread = record->add_thread(1, 2, "main");
  for (std::uint32_t i = 0; i < 3; ++i) thread->enter(line(i + 1, 10));
  thread->move(line(3, 11));
  EXPECT_EQ(each(record.stack(0), &Place::code, &Place::position), "1 10, 2 10, 3 11");
  thread->leave();
  EXPECT_EQ(each(record.stack(0), &Place::code), "1, 2");
  for (int i = 0; i < 5; ++i) thread->leave();
  EXPECT_TRUE(record.stack(0).empty());
  const std::uint32_t room = record.slot(0).stack_room;
  const std::uint32_t deep = room + 100;
  for (std::uint32_t i = 0; i < deep; ++i) thread->enter(line(i + 1, 1));
  thread->move(line(deep, 2));
  EXPECT_EQ(record.slot(0).depth, deep);
  EXPECT_EQ(record.stack(0).back().bits, line(deep, 2).bits);
  EXPECT_EQ(record.stack(0)[room - 2].code(), room - 1);
  for (int i = 0; i < 101; ++i) thread->leave();
  EXPECT_EQ(record.slot(0).depth, room - 1);
}

TEST(Recorder, ThreadsBeyondTheRingsKeepTheirStacksAndBeyondTheSlotsAreCounted) {
  Record record(kChildBytes);
  const std::uint32_t slots = record.header().threads.count;
  std::vector<ThreadRecorder*> threads;
  for (std::uint32_t i = 0; i < slots; ++i) {
    threads.push_back(record->add_thread(i, i, "worker"));
    threads.back()->enter(line(1, 1));
    for (int k = 0; k < 10'000; ++k) threads.back()->append(line(1, 1));
    EXPECT_EQ(record.stack(i).size(), 1U);
  }
  EXPECT_EQ(record->add_thread(9, 9, "one too many"), nullptr);
  EXPECT_EQ(record.header().lost_threads, 1U);
  record->end_thread(*threads[1]);
  ASSERT_NE(record->add_thread(77, 77, "later"), nullptr);
  EXPECT_EQ(words(record.slot(1).tid, record.slot(1).state >> 32, record.slot(1).head), "77 2 0");
}

// bad_alloc in a function that is noexcept would end the training.
TEST(Recorder, AProcessWithoutMemoryGoesOnAndAThreadThatGetsNoneTakesNoSlot) {
  Record record(kChildBytes);
  const std::uint32_t slots = record.header().threads.count;
  const std::string name(200, 'x');
  ThreadRecorder* thread = record->add_thread(1, 1, "thread");
  std::uint32_t refused = 0, ids = 0;
  out_of_memory = true;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    try {
      if (i < slots) record->add_thread(i, i, "refused");
    } catch (const std::bad_alloc&) {
      ++refused;
    }
    ids += record->dictionary().add_code(
        {.name = name, .file = name, .linetable = {}, .first_line = i});
    ids += record->dictionary().group({.name = std::string_view(name).substr(i % 200)});
  }
  record->end_thread(*thread);
  out_of_memory = false;
  EXPECT_GT(ids, 0U);
  for (std::uint32_t i = 0; refused > 0 && i < slots; ++i) {
    EXPECT_NE(record->add_thread(i, i, "worker"), nullptr) << i;
  }
  EXPECT_TRUE(refused == 0 || record.header().lost_threads == 0U);
}

TEST(Dictionary, NamesOnceAndSaysWhenItIsFull) {
  Record record(kFewestBytes);
  DictionaryWriter& dictionary = record->dictionary();
  EXPECT_EQ(dictionary.group({.name = "default"}), 1U);
  EXPECT_EQ(dictionary.operation("allreduce_"), 1U);
  EXPECT_EQ(dictionary.group({.name = "default"}), 1U);
  EXPECT_EQ(dictionary.group({.name = "other"}), 2U);
  const std::string table(100, 'x');
  std::uint32_t last = 0;
  const auto add = [&](std::uint32_t line) {
    return dictionary.add_code(
        {.name = "f", .file = "train.py", .linetable = table, .first_line = line});
  };
  while (const std::uint32_t id = add(last + 1)) {
    EXPECT_EQ(id, last + 1);
    last = id;
  }
  EXPECT_GT(last, 100U);
  EXPECT_EQ(record.header().lost_codes, 1U);
  EXPECT_EQ(add(7), 7U) << "what is known needs no room";
  const std::uint32_t lost = dictionary.lost_code();
  EXPECT_GT(lost, last);
  EXPECT_EQ(dictionary.lost_code(), lost);
  const std::string text(4000, 'x');
  EXPECT_EQ(dictionary.add_code({.name = text, .file = text, .linetable = {}}), 0U);
  for (int i = 0; i < 100; ++i) last = dictionary.group({.name = std::to_string(i) + text});
  EXPECT_EQ(last, 0U);
  EXPECT_EQ(record.header().lost_codes, 2U) << "one object is lost once, and a name is no code";
  EXPECT_LE(record.header().dictionary_head, record.header().dictionary.count);
}

TEST(Dictionary, KeepsTheRanksOfEveryGroupInItsOrderOrItsSizeAlone) {
  Record record(kRankBytes);
  DictionaryWriter& dictionary = record->dictionary();
  std::vector<std::vector<std::uint64_t>> lists = {
      {5}, {3, 1, 2}, {0, 8, 16, 24}, {0, 1, 2, 100, 101, 7}, {4, 4}, {}, {9, 8, 7, 6}};
  lists.emplace_back(16'384);
  for (std::size_t i = 0; i < lists.back().size(); ++i) lists.back()[i] = 16 * i;
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same each time
  for (std::size_t many : {100U, 1000U}) {
    lists.emplace_back(many);
    std::iota(lists.back().begin(), lists.back().end(), 0);
    std::ranges::shuffle(lists.back(), random);
  }
  for (const auto& ranks : lists) {
    const GroupFacts facts{
        .name = "group", .ranks = ranks, .size = static_cast<std::uint32_t>(ranks.size())};
    ASSERT_EQ(dictionary.group(facts), &ranks - lists.data() + 1);
  }
  const GroupFacts nccl{.name = "group", .backend = "nccl", .ranks = lists[0], .size = 1};
  EXPECT_EQ(dictionary.group(nccl), lists.size() + 1);
  const Dictionary read(record.open());
  EXPECT_EQ(read.broken(), "");
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const ProcessGroup* group = read.group(static_cast<std::uint32_t>(i + 1));
    ASSERT_NE(group, nullptr) << i;
    std::vector<std::uint64_t> ranks;
    for (std::uint32_t r = 0; r < group->size; ++r) ranks.push_back(group->global(r).value());
    EXPECT_EQ(ranks, lists[i]) << i;
  }
  std::vector<std::uint64_t> irregular;
  for (std::uint64_t i = 0; i < 4 * kMostRuns; ++i) irregular.push_back(i * i % 65'521);
  const auto id = dictionary.group({.name = "irregular", .ranks = irregular, .size = 7});
  const Dictionary again(record.open());
  EXPECT_EQ(again.group(id)->size, 7U);
  EXPECT_TRUE(again.group(id)->runs.empty()) << "too many to keep";
}

TEST(Dictionary, EqualCodeAndGroupsAreOneEntryHoweverManyThereAre) {
  Record record(std::size_t{16} << 20);
  DictionaryWriter& dictionary = record->dictionary();
  for (std::uint32_t i = 0; i < 10'000; ++i) {  // more than it knows by hash
    const std::string name = std::to_string(i % 5000);
    ASSERT_EQ(dictionary.group({.name = name}), i % 5000 + 1);
  }
  const std::string table(100, 'x');
  const CodeFacts code{.name = "<module>", .file = "<string>", .linetable = table, .first_line = 1};
  for (int i = 0; i < 100'000; ++i) ASSERT_EQ(dictionary.add_code(code), 1U);
  CodeFacts other = code;
  other.linetable = std::string_view(table).substr(1);
  EXPECT_EQ(dictionary.add_code(other), 2U);
  EXPECT_EQ(record.header().lost_codes, 0U);
}

TEST(Crc, IsThatOfZlib) {
  EXPECT_EQ(crc32("123456789", 9), 0xCBF43926U);
  EXPECT_EQ(crc32("6789", 4, crc32("12345", 5)), 0xCBF43926U);
}

TEST(Collectives, ThoseThatAreOpenStayHoweverManyFollow) {
  Record record;
  CollectiveRing& ring = record->collectives();
  const std::uint64_t hung = ring.begin({.group = 1, .operation = 2, .sequence = 7, .bytes = 64});
  for (int i = 0; i < 10'000; ++i) ring.close(ring.begin({.group = 1, .operation = 3}));
  EXPECT_EQ(each(read_open_collectives(record.open()), &CollectiveRecord::sequence), "7");
  ring.close(hung);
  EXPECT_TRUE(read_open_collectives(record.open()).empty());
  EXPECT_EQ(record.header().lost_collectives, 0U);
  for (int i = 0; i < 100; ++i) static_cast<void>(ring.begin({}));
  EXPECT_EQ(record.header().lost_collectives, 100U - record.header().open.count);
}

TEST(Collectives, MessagesAreNumberedByPartner) {
  Record record;
  CollectiveRing& ring = record->collectives();
  const auto number_of = [&](Role role, std::uint32_t partner, std::uint32_t group = 1) {
    ring.close(ring.begin({.group = group, .operation = 1, .partner = partner, .role = role}));
    return read_joined_collectives(record.open()).back().known_sequence();
  };
  EXPECT_EQ(number_of(Role::kSend, 3), 1U);
  EXPECT_EQ(number_of(Role::kRecv, 3), 1U) << "the other way";
  EXPECT_EQ(number_of(Role::kSend, 3), 2U);
  EXPECT_EQ(number_of(Role::kSend, 4), 1U);
  EXPECT_EQ(number_of(Role::kRecv, 3, 2), 1U);
  EXPECT_EQ(number_of(Role::kRecv, kNoRank), std::nullopt);
  EXPECT_EQ(number_of(Role::kRecv, 3), std::nullopt) << "it may have had some of them";
  EXPECT_EQ(number_of(Role::kSend, 3), 3U);
  EXPECT_EQ(number_of(Role::kRecv, 3, 2), 2U) << "another group";
  EXPECT_EQ(number_of(Role::kSend, 3, 0), std::nullopt) << "of any group without an id";
  for (std::uint32_t i = 0; i < 5000; ++i) {
    ring.close(ring.begin({.group = 3, .operation = 1, .partner = 100 + i, .role = Role::kSend}));
  }
  EXPECT_EQ(number_of(Role::kSend, 6000, 3), std::nullopt) << "no room";
  EXPECT_EQ(number_of(Role::kSend, 4), 2U);
  static_cast<void>(number_of(Role::kRecv, kNoRank, 4));
  EXPECT_EQ(number_of(Role::kRecv, 3, 2), std::nullopt) << "no room to note that of any rank";
  EXPECT_TRUE(read_progress(record.open()).empty());
}

}  // namespace
}  // namespace oddrank::trace::record_test

// Replaces the library's operator in the whole test program. Weak: the thread sanitizer brings its
// own and keeps it, so the test of what allocates checks nothing under it.
#define ODDRANK_REPLACES [[gnu::weak, gnu::noinline]]

ODDRANK_REPLACES void* operator new(std::size_t size) {
  void* memory = oddrank::trace::record_test::out_of_memory ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// With it all forms that the library pairs with the deletes below: sanitizers compare them.
ODDRANK_REPLACES void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return std::malloc(size);
}
ODDRANK_REPLACES void operator delete(void* memory) noexcept { std::free(memory); }
ODDRANK_REPLACES void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

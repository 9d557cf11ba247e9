// Makes the records that the fuzzer starts from: fuzz_seeds FOLDER.
#include <cstdio>
#include <string>

#include "record_builder.hpp"

namespace {

using namespace oddrank::trace;

// Sizes of the smallest record with some of everything.
constexpr RecordSizes kSmall{.dictionary = 1536, .stack_room = 6};

Place at(std::uint32_t code, std::uint32_t position, Kind kind, std::uint8_t flags = 0) {
  return Place::of(code, position,
                   static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | flags));
}

// Records nested calls, a generator, an exception, a gap, and a stack that fits the end.
void record_calls(RecordBuilder& record, std::uint32_t thread, std::uint64_t from) {
  const Place events[] = {
      at(1, kNoPosition, Kind::kCall),
      at(1, 11, Kind::kLine),
      at(2, kNoPosition, Kind::kCall),
      at(2, 4, Kind::kLine, kIsOffset),
      at(2, kNoPosition, Kind::kYield),
      at(2, kNoPosition, Kind::kResume),
      at(2, kNoPosition, Kind::kThrow),
      at(2, kNoPosition, Kind::kUnwind),
      at(1, 12, Kind::kLine),
      at(0, 0, Kind::kGap),
      at(1, static_cast<std::uint32_t>(Level::kCalls), Kind::kLevel),
      at(3, kNoPosition, Kind::kReturn),
      at(1, 13, Kind::kLine),
      at(2, kNoPosition, Kind::kCall),
  };
  const Place stack[] = {at(3, 5, Kind::kLine), at(1, 13, Kind::kLine),
                         at(2, kNoPosition, Kind::kCall)};
  record.thread(thread, "MainThread", stack);
  for (const Place place : events) record.event(thread, from += 50, place);
}

void record_names(RecordBuilder& record) {
  using namespace std::string_view_literals;
  record.entry(EntryKind::kText, 1, "/home/user/train.py");
  const auto table = "\x02\x03\x01\x00\x01\x01\x02\x04\x80\x01\xff\x02\x01\xdd\x03"sv;
  record.code(1, "main", 1, 10, table);
  record.code(2, "Trainer.st\xc3\xa9p\"\\\x01", 1, 40, table);
  record.code(3, "<module>", 1, 0).now = LevelNow::of(Level::kOff, 4000).bits;
  const RankRun runs[] = {{0, 1, 4}, {16, 8, 2}};
  record.group(1, "default_pg", runs);
  record.entry(EntryKind::kOperation, 2, "all_reduce");
}

void record_rest(RecordBuilder& record) {
  fill_rings(record);
  record.mark(MarkKind::kSectionBegin, 2, "data");
  record.mark(MarkKind::kSectionEnd, 2, "data");
  record.mark(MarkKind::kMark, 0, "a mark");
  record.collective(Phase::kIssued, 2);
  record.open_collective(1, 3);
  record.header().lost_groups = 2;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return std::fputs("fuzz_seeds FOLDER\n", stderr), 2;
  const std::string folder = arguments[1];
  RecordBuilder empty(kSmall);
  empty.save(folder + "/empty");
  FullRecord some;
  some.save(folder + "/some");
  RecordBuilder record(kSmall);
  record_names(record);
  record_calls(record, 0, 1'000);
  record_calls(record, 1, 1'025);
  record_rest(record);
  record.save(folder + "/dead");
  // The same for a process of this boot, and for a child.
  set_text(record.header().boot_id, "boot");
  record.header().process.pid_namespace = 7;
  record.header().process.start_time = 1234;
  record.header().process.is_child = 1;
  record.header().process.pid = 100 + 1;  // equal to a thread's id: makes that the main thread
  record.save(folder + "/alive");
  return 0;
}

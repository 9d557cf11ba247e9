// The records that any thread may write: marks, and the begin and end of collectives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/read/file.hpp"

namespace oddrank::trace {

struct Mark {
  std::uint64_t claim = 0;  // its number among all marks, from 0
  std::uint64_t tsc = 0;
  std::uint64_t value = 0;
  std::uint32_t tid = 0;
  MarkKind kind = MarkKind::kMark;  // or what a broken file says
  std::string text;                 // bytes of the writer's
};

struct CollectiveRecord {
  static constexpr std::uint64_t kNoSequence = ~std::uint64_t{0};

  std::uint64_t claim = 0;  // its number among all, from 0; for an open one its collective's number
  std::uint64_t tsc = 0;
  std::uint64_t number = 0;
  std::uint64_t sequence = kNoSequence;
  std::uint64_t bytes = 0;
  std::uint32_t group = 0;  // ids of the dictionary, not looked up
  std::uint32_t operation = 0;
  std::uint32_t tid = 0;
  std::uint16_t data_type = 0;
  Phase phase = Phase::kBegin;  // or what a broken file says
};

// What was claimed by a writer and is here no more, or not yet: overwritten by a later lap, being
// written, or left half-written by a thread that died.
template <class Record>
struct Records {
  std::vector<Record> list;      // in the order of their claims
  std::uint64_t claimed = 0;     // ever
  std::uint64_t unfinished = 0;  // of the last lap: without a commit word that fits
};

Records<Mark> read_marks(const RecordFile& file);
Records<CollectiveRecord> read_collectives(const RecordFile& file);
// Those begun and not ended, by their numbers. One that began or ended meanwhile may be missing.
std::vector<CollectiveRecord> read_open_collectives(const RecordFile& file);

}  // namespace oddrank::trace

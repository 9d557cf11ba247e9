// The collectives of a record: begin, end and the table of open ones joined.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "trace/read/records.hpp"

namespace oddrank::trace {

struct Collective {
  enum class State : std::uint8_t {
    kOpen,    // begun and not ended when the file was read or its process died
    kEnded,   // or failed
    kIssued,  // a device went on with it; when it ended is not recorded
  };

  std::uint64_t number = 0;  // in its process, from 1
  State state = State::kOpen;
  std::uint32_t group = 0;  // ids of the dictionary, not looked up
  std::uint32_t operation = 0;
  std::uint32_t tid = 0;  // of the thread that issued it
  std::uint16_t data_type = kNoType;
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> sequence;
  std::optional<std::uint64_t> begin, end;  // ticks; no begin: overwritten since
};

std::string_view name_of(Collective::State state) noexcept;

// What is still there of them, in the order of issue; open ones always are.
std::vector<Collective> read_joined_collectives(const RecordFile& file);

}  // namespace oddrank::trace

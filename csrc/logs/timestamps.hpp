// Finds the time that a line of a log names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace oddrank::logs {

struct Timestamp {
  // utc: the line names its zone. wall: it does not, and UTC is assumed. boot: since the kernel's
  // start.
  enum class Clock : std::uint8_t { utc, wall, boot };

  std::int64_t ns = 0;
  Clock clock = Clock::wall;
  bool whole_seconds = false;
};

// Takes a time of ISO 8601 with its zone from the front of a text: the first form below.
std::optional<Timestamp> take_iso(std::string_view& text);

// Returns the first time in the first 256 bytes of a line. Forms: ISO 8601 with "T" or a space and
// "." or ",", "_" as in torchelastic's table, month/day/year as nanotron writes it, glog (E419
// 10:42:28.858931807, W0508 08:47:31.2), syslog, seconds since 1970 with a fraction, [seconds since
// boot]. Lines that name no year get the one that puts them last before `reference_ns`, e.g. the
// time when the file was written.
std::optional<Timestamp> find_time(std::string_view line, std::int64_t reference_ns);

}  // namespace oddrank::logs

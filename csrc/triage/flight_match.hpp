// Compares the dumps of all ranks: how far each came in each group, and where they issued
// different operations.
#pragma once

#include "triage/flight_dump.hpp"

namespace oddrank {

struct FlightFile {
  std::string path;
  std::int64_t rank = -1;     // as its name says it; -1: it does not
  std::int64_t modified = 0;  // nanoseconds since 1970; 0: unknown
};

enum class Differs : std::uint8_t { op, dtype, sizes, order };

struct FlightVariant {
  FlightCall call;
  std::size_t file = 0;
  std::vector<std::int64_t> ranks;
  // Whether the group issued the same before, after the same calls. -1: it shows no pattern.
  std::int8_t usual = -1;
};

struct FlightMismatch {
  std::uint32_t group = 0;
  std::int64_t seq = 0;
  Differs differs = Differs::op;
  std::vector<FlightVariant> variants;  // the commonest first
};

struct FlightRecords {
  std::unique_ptr<FlightTables> tables = std::make_unique<FlightTables>();
  std::vector<FlightDump> dumps;    // as many as files; one that another replaces has no tracks
  std::vector<std::int64_t> ranks;  // of each file; -1: unknown
  std::vector<FlightMismatch> mismatches;
};

// Reads files in up to `threads` threads, and compares them.
FlightRecords read_flight_records(const std::vector<FlightFile>& files, std::size_t threads);

// Reads dumps that are already in memory: one text a file.
FlightRecords read_flight_records(const std::vector<FlightFile>& files,
                                  const std::vector<std::string>& texts);

}  // namespace oddrank

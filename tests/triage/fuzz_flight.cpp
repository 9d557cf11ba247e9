// Fuzzes both readers of flight-recorder dumps, and the comparison of two ranks' dumps.
//
// An input is the dump of rank 0, and after a separator that of rank 1. benchmarks/triage/fuzz.py
// makes the first inputs and runs it.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "triage/flight_match.hpp"

using oddrank::FlightDump;
using oddrank::FlightFile;
using oddrank::FlightRecords;
using oddrank::FlightTrack;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kSeparator("\xff\x00\xff\x00", 4);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t at = input.find(kSeparator);
  std::vector<std::string> texts{std::string(input.substr(0, at))};
  std::vector<FlightFile> files{{"a", 0, 1'800'000'000'000'000'000}};
  if (at != std::string_view::npos) {
    texts.emplace_back(input.substr(at + kSeparator.size()));
    files.push_back({"b", 1, 1'800'000'000'000'000'000});
  }
  const FlightRecords records = oddrank::read_flight_records(files, texts);
  for (const FlightDump& dump : records.dumps) {
    for (const FlightTrack& track : dump.tracks) {
      if (track.open.size() > FlightTrack::kMostOpen) std::abort();
      if (track.group >= records.tables->groups.size()) std::abort();
    }
  }
  for (const auto& mismatch : records.mismatches) {
    if (mismatch.variants.size() < 2) std::abort();
  }
  return 0;
}

// What a rank did in one group, from the entries of its dump.
#pragma once

#include <cstdint>
#include <vector>

#include "triage/flight_dump.hpp"
#include "triage/flight_entry.hpp"

namespace oddrank {

// Makes tracks of entries. Marks entries as closed that others prove closed.
class FlightTracker {
 public:
  FlightTracker(FlightTables& tables, std::vector<FlightEntry>& entries, Visits& visits)
      : tables_(tables), entries_(entries), visits_(visits) {}

  FlightTrack track(const FlightName& name, const FlightDump& dump);

 private:
  void close_groups(const FlightName& name);
  FlightTrack::Status what_counters_count(const FlightName& name) const;
  void close_done(const FlightName& name, FlightTrack& track);
  static void add_row(const FlightEntry& entry, FlightTrack& track);
  void messages(const FlightName& name, FlightTrack& track);
  void choose_open(const FlightName& name, FlightTrack& track, const FlightDump& dump);
  FlightCall call_of(const FlightEntry& entry, const FlightGroup& group) const;
  std::int32_t global(const FlightName& name, std::int32_t own) const;

  FlightTables& tables_;
  std::vector<FlightEntry>& entries_;
  Visits& visits_;
};

}  // namespace oddrank

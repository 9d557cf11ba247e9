// Finds where the ranks of a group issued different operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "triage/flight_match.hpp"

namespace oddrank {

struct FlightMember {
  std::size_t file;
  FlightTrack* track;
};
using FlightMembers = std::vector<FlightMember>;

class FlightMismatches {
 public:
  FlightMismatches(const FlightTables& tables, const std::vector<std::int64_t>& ranks,
                   std::vector<FlightMismatch>& found)
      : tables_(tables), ranks_(ranks), found_(found) {}

  // Finds the first call of a group in which its members differ.
  void of_group(std::uint32_t group, const FlightMembers& members);

 private:
  struct Held {
    std::uint32_t signature;
    FlightMembers members;
  };

  bool report(std::uint32_t group, const FlightMembers& members, std::int64_t seq);
  bool compatible(const Held& held, std::uint32_t signature, bool newest) const;
  static std::uint32_t expected_at(const std::vector<Held>& held, std::int64_t seq);

  const FlightTables& tables_;
  const std::vector<std::int64_t>& ranks_;
  std::vector<FlightMismatch>& found_;
};

}  // namespace oddrank

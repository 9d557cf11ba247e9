// The fingerprint of the core that this thread runs on.
#include "selftest/fingerprint.hpp"

namespace oddrank::selftest {

std::uint64_t host_fingerprint(Unit unit) {
  std::uint64_t hash = 0;
  for (std::uint32_t lane = 0; lane < kFingerprintLanes; ++lane) {
    hash = fold(hash, fingerprint_lane(unit, lane));
  }
  return hash;
}

}  // namespace oddrank::selftest

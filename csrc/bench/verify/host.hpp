// Fills and checks a segment in host memory.
#pragma once

#include "bench/verify/segment.hpp"

namespace oddrank::bench {

// `address` needs no alignment. Both throw Error where it is null and there is something to do.
// Writes what the source puts in.
void fill(void* address, const Segment& segment);
// Compares with what the collective leaves: with op none the source's data, else the result over
// all ranks.
Mismatch check(const void* address, const Segment& segment);

}  // namespace oddrank::bench

// The dtypes of the collectives: their names, sizes, and exact conversion to and from their bits.
// C++17: included by .cu files.
#pragma once

#include <cstdint>
#include <string_view>

namespace oddrank::bench {

enum class Dtype : std::uint8_t {
  kFloat32,
  kFloat16,
  kBfloat16,
  kFloat8E4m3fn,
  kFloat8E5m2,
  kFloat64,
  kInt8,
  kInt32,
  kInt64,
};

struct DtypeTraits {
  std::string_view name;  // torch's
  unsigned size;          // bytes
  // Bits of a float's exponent and mantissa; both 0 for integers.
  int exponent_bits;
  int mantissa_bits;
  bool infinite;  // false for e4m3fn, whose largest exponent holds numbers and no infinity
  // For the pattern: sums of ones are exact in any order up to this many; and the largest number.
  double exact;
  double largest;
  std::uint32_t moved_values;  // number of values that mark moved data, a prime

  bool is_float() const noexcept { return exponent_bits != 0; }
};

const DtypeTraits& traits(Dtype dtype) noexcept;

// Throws Error for an unknown name.
Dtype dtype_of(std::string_view name);

// Returns the bits of the nearest number (ties to even) in the low bytes. An integer dtype must
// hold `value`.
std::uint64_t encode(Dtype dtype, double value) noexcept;

// Returns the number in the low bytes of `bits`; for an int64 beyond 2^53 the nearest double.
double decode(Dtype dtype, std::uint64_t bits) noexcept;

}  // namespace oddrank::bench

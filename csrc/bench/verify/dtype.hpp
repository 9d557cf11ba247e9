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
  // Of a float: bits of its exponent and of its mantissa; both 0 of an integer.
  int exponent_bits;
  int mantissa_bits;
  bool infinite;  // false: e4m3fn, whose largest exponent holds numbers, and no infinity
  // The pattern's: sums of ones are exact, in any order, up to this many; and the largest number.
  double exact;
  double largest;
  std::uint32_t moved_values;  // a prime: how many values mark moved data

  bool is_float() const noexcept { return exponent_bits != 0; }
};

const DtypeTraits& traits(Dtype dtype) noexcept;

// Throws Error where there is no such dtype.
Dtype dtype_of(std::string_view name);

// The bits of the nearest number (ties to even), in the low bytes. Integers: `value` must be one
// that the dtype holds.
std::uint64_t encode(Dtype dtype, double value) noexcept;

// The number that the low bytes of `bits` are; of an int64 beyond 2^53 the nearest double.
double decode(Dtype dtype, std::uint64_t bits) noexcept;

}  // namespace oddrank::bench

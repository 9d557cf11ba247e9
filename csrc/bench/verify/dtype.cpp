// Names and bits of the dtypes.
#include "bench/verify/dtype.hpp"

#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>

#include "os/error.hpp"

namespace oddrank::bench {
namespace {

constexpr double kTwoTo53 = 9007199254740992.0;

// In the order of the enum.
constexpr DtypeTraits kDtypes[] = {
    {"float32", 4, 8, 23, true, 16777216.0, 3.4e38, 16777213},
    {"float16", 2, 5, 10, true, 2048.0, 65504.0, 4093},
    {"bfloat16", 2, 8, 7, true, 256.0, 3.3e38, 509},
    {"float8_e4m3fn", 1, 4, 3, false, 16.0, 448.0, 61},
    {"float8_e5m2", 1, 5, 2, true, 8.0, 57344.0, 61},
    {"float64", 8, 11, 52, true, kTwoTo53, 1.7e308, 16777213},
    {"int8", 1, 0, 0, false, 127.0, 127.0, 251},
    {"int32", 4, 0, 0, false, 2147483647.0, 2147483647.0, 16777213},
    {"int64", 8, 0, 0, false, kTwoTo53, kTwoTo53, 16777213},
};

template <class To, class From>
To bits_as(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// The exponent of the smallest normal number.
int smallest_exponent(const DtypeTraits& t) noexcept { return 2 - (1 << (t.exponent_bits - 1)); }

std::uint64_t encode_small_float(const DtypeTraits& t, double value) noexcept {
  const std::uint64_t sign = std::signbit(value) ? std::uint64_t{1} << (t.size * 8 - 1) : 0;
  const std::uint64_t exponents = (std::uint64_t{1} << t.exponent_bits) - 1;
  const std::uint64_t ones = (std::uint64_t{1} << t.mantissa_bits) - 1;
  // The bits after the largest finite number: infinity, or the NaN of e4m3fn.
  const std::uint64_t beyond = (exponents << t.mantissa_bits) | (t.infinite ? 0 : ones);
  if (std::isnan(value)) return sign | (exponents << t.mantissa_bits) | ones;
  if (std::isinf(value)) return sign | beyond;
  if (value == 0) return sign;
  const int smallest = smallest_exponent(t);
  const int exponent = std::max(std::ilogb(value), smallest);
  // In units of the last place. The implied leading bit is what makes the exponent 1 more than that
  // of the numbers below the smallest normal one; rounding up to the next exponent works likewise.
  const auto units = static_cast<std::uint64_t>(
      std::nearbyint(std::ldexp(std::fabs(value), t.mantissa_bits - exponent)));
  const auto steps = static_cast<std::uint64_t>(exponent - smallest);
  return sign | std::min((steps << t.mantissa_bits) + units, beyond);
}

double decode_small_float(const DtypeTraits& t, std::uint64_t bits) noexcept {
  const std::uint64_t exponents = (std::uint64_t{1} << t.exponent_bits) - 1;
  const std::uint64_t ones = (std::uint64_t{1} << t.mantissa_bits) - 1;
  const std::uint64_t exponent = (bits >> t.mantissa_bits) & exponents;
  const std::uint64_t mantissa = bits & ones;
  const double sign = (bits >> (t.size * 8 - 1)) & 1 ? -1.0 : 1.0;
  if (exponent == exponents && (t.infinite || mantissa == ones)) {
    return t.infinite && mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                                       : std::numeric_limits<double>::quiet_NaN();
  }
  const std::uint64_t units = exponent == 0 ? mantissa : mantissa + ones + 1;
  const int steps = exponent == 0 ? 0 : static_cast<int>(exponent) - 1;
  return sign *
         std::ldexp(static_cast<double>(units), steps + smallest_exponent(t) - t.mantissa_bits);
}

}  // namespace

const DtypeTraits& traits(Dtype dtype) noexcept { return kDtypes[static_cast<std::size_t>(dtype)]; }

Dtype dtype_of(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < std::size(kDtypes); ++i) {
    if (kDtypes[i].name == name) return static_cast<Dtype>(i);
    known += (known.empty() ? "" : ", ") + std::string(kDtypes[i].name);
  }
  throw Error("unknown dtype '" + std::string(name) + "'; known: " + known);
}

std::uint64_t encode(Dtype dtype, double value) noexcept {
  const DtypeTraits& t = traits(dtype);
  if (!t.is_float()) return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  if (dtype == Dtype::kFloat64) return bits_as<std::uint64_t>(value);
  if (dtype == Dtype::kFloat32) return bits_as<std::uint32_t>(static_cast<float>(value));
  return encode_small_float(t, value);
}

double decode(Dtype dtype, std::uint64_t bits) noexcept {
  const DtypeTraits& t = traits(dtype);
  if (!t.is_float()) {  // the sign is in the topmost bit of its size
    const unsigned unused = 64 - 8 * t.size;
    return static_cast<double>(static_cast<std::int64_t>(bits << unused) >> unused);
  }
  if (dtype == Dtype::kFloat64) return bits_as<double>(bits);
  if (dtype == Dtype::kFloat32) return bits_as<float>(static_cast<std::uint32_t>(bits));
  return decode_small_float(t, bits);
}

}  // namespace oddrank::bench

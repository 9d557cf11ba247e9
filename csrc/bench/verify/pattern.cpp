// Converts the dtypes exactly; chooses each slot's contributors and values.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include "bench/verify/verify.hpp"
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
    {"uint8", 1, 0, 0, false, 255.0, 255.0, 251, false},
    {"uint32", 4, 0, 0, false, 4294967295.0, 4294967295.0, 16777213, false},
    {"uint64", 8, 0, 0, false, kTwoTo53, kTwoTo53, 16777213, false},
};

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
  // In units of the last place. The implied leading bit makes the exponent 1 more than for numbers
  // below the smallest normal one; rounding up to the next exponent works likewise.
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

// In the order of the enum.
constexpr std::string_view kOps[] = {"sum", "min", "max", "avg", "prod", "none"};

// Primes above kMostRanks divide no world.
constexpr std::array<std::uint64_t, 16> kPrimes = {
    1048583, 1048589, 1048601, 1048609, 1048613, 1048627, 1048633, 1048661,
    1048681, 1048703, 1048709, 1048717, 1048721, 1048759, 1048783, 1048793};
static_assert(kPrimes[0] > kMostRanks);

constexpr std::uint32_t kMostExponents = 4;
constexpr std::uint32_t kMostTwos = 4;
// min of unsigned numbers: this much less the numbers of max.
constexpr std::uint32_t kLeastBelow = 9;
constexpr double kMostDoublings = 31;  // in a product of unsigned numbers

// Numbers drawn one after the other from one key.
class Draw {
 public:
  explicit Draw(std::uint64_t key) noexcept : state_(key) {}
  std::uint32_t below(std::uint32_t limit) noexcept {
    state_ = mix(state_);
    return static_cast<std::uint32_t>(((state_ >> 32) * limit) >> 32);
  }

 private:
  std::uint64_t state_;
};

// Returns 1/n as the dtype rounds it.
double rounded_share(Dtype dtype, std::uint32_t world) noexcept {
  return decode(dtype, encode(dtype, 1.0 / world));
}

bool divides_exactly(Dtype dtype, std::uint32_t world) noexcept {
  return std::has_single_bit(world) && rounded_share(dtype, world) * world == 1;
}

// A number of 6 bits that both 8-bit floats hold: +-(4..7) * 2^(-2..5).
double small_float(std::uint32_t v) noexcept {
  const double size = std::ldexp(4.0 + (v >> 1 & 3), static_cast<int>(v >> 3 & 7) - 2);
  return v & 1 ? -size : size;
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
  if (dtype == Dtype::kFloat64) return std::bit_cast<std::uint64_t>(value);
  if (dtype == Dtype::kFloat32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return encode_small_float(t, value);
}

double decode(Dtype dtype, std::uint64_t bits) noexcept {
  const DtypeTraits& t = traits(dtype);
  if (!t.is_float()) {  // the sign is in the topmost bit of its size
    const unsigned unused = 64 - 8 * t.size;
    if (!t.is_signed) return static_cast<double>(bits << unused >> unused);
    return static_cast<double>(static_cast<std::int64_t>(bits << unused) >> unused);
  }
  if (dtype == Dtype::kFloat64) return std::bit_cast<double>(bits);
  if (dtype == Dtype::kFloat32) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  return decode_small_float(t, bits);
}

Op op_of(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < std::size(kOps); ++i) {
    if (kOps[i] == name) return static_cast<Op>(i);
    known += (known.empty() ? "" : ", ") + std::string(kOps[i]);
  }
  throw Error("op '" + std::string(name) + "' is none of " + known);
}

// The numbers that a slot draws, the same on every rank.
struct Pattern::Choice {
  std::uint32_t contributors;  // L
  double size;                 // 2^e
  std::uint32_t twos;          // prod: how many ranks put in a 2,
  std::uint32_t twos_begin;    //   from which x on
  std::uint32_t extreme;       // min, max: 5..8
};

Pattern::Pattern(Dtype dtype, Op op, std::uint32_t world, std::uint64_t turn) noexcept
    : dtype_(dtype), op_(op), world_(world), turn_(turn), most_(world), exponents_(kMostExponents) {
  const DtypeTraits& t = traits(dtype);
  double most = world;
  if (op == Op::kMin || op == Op::kMax) {
    most = 1;
  } else if (op == Op::kProd && !t.is_signed) {
    most = std::min({most, kMostDoublings, std::floor(std::log2(t.largest))});
  } else if (op == Op::kSum || op == Op::kAvg) {
    most = std::min<double>(world, t.exact);
    if (op == Op::kAvg && t.is_float() && !divides_exactly(dtype, world))
      most = std::min(most, 2.0);
    if (op == Op::kAvg && !t.is_float() && world <= t.largest) {
      unit_ = world;
      most = std::min(most, std::floor(t.largest / world));
    }
    while (most * unit_ * std::ldexp(1.0, static_cast<int>(exponents_) - 1) > t.largest) {
      --exponents_;
    }
  }
  most_ = static_cast<std::uint32_t>(most);
  fewest_ = (most_ + 1) / 2;
}

std::uint64_t Pattern::number_of(std::uint32_t rank, std::uint32_t slot,
                                 std::uint64_t turn) const noexcept {
  const std::uint64_t place = mix(slot);
  const std::uint64_t moves = turn % world_ * fewest_;
  return (kPrimes[place % kPrimes.size()] * rank + (place >> 32) + moves) % world_;
}

Pattern::Choice Pattern::choose(std::uint32_t slot) const noexcept {
  Draw draw(mix(turn_) + slot);
  Choice choice{};
  choice.contributors = fewest_ + draw.below(most_ - fewest_ + 1);
  choice.size = static_cast<double>(1U << draw.below(exponents_));
  choice.twos = draw.below(std::min(world_, kMostTwos) + 1);
  choice.twos_begin = draw.below(world_);
  choice.extreme = 5 + draw.below(4);
  return choice;
}

double Pattern::contribution(std::uint32_t rank, std::uint32_t slot) const noexcept {
  if (op_ == Op::kNone) return moved(rank, slot);
  const std::uint64_t x = number_of(rank, slot, turn_);
  const Choice choice = choose(slot);
  const bool takes_part = x < choice.contributors;
  const bool is_signed = traits(dtype_).is_signed;
  if (op_ == Op::kProd && !is_signed) return takes_part ? 2.0 : 1.0;
  if (op_ == Op::kProd) {
    const bool two = (x + choice.twos_begin) % world_ < choice.twos;
    return (takes_part ? -1.0 : 1.0) * (two ? 2.0 : 1.0);
  }
  if (op_ == Op::kSum || op_ == Op::kAvg) return takes_part ? choice.size * unit_ : 0.0;
  const std::uint32_t background = 1 + (mix(mix(slot + turn_) + rank) & 3);
  if (op_ == Op::kMin && !is_signed) {
    return choice.size * (takes_part ? kLeastBelow - choice.extreme : kLeastBelow - background);
  }
  const double value = choice.size * (takes_part ? choice.extreme : background);
  return op_ == Op::kMin ? -value : value;
}

double Pattern::result(std::uint32_t slot) const noexcept {
  const Choice choice = choose(slot);
  const bool is_signed = traits(dtype_).is_signed;
  if (op_ == Op::kProd && !is_signed) return std::ldexp(1.0, static_cast<int>(choice.contributors));
  if (op_ == Op::kProd) {
    const double size = 1U << choice.twos;
    return choice.contributors % 2 == 0 ? size : -size;
  }
  if (op_ == Op::kMin && !is_signed) return choice.size * (kLeastBelow - choice.extreme);
  if (op_ == Op::kMin) return -choice.size * choice.extreme;
  if (op_ == Op::kMax) return choice.size * choice.extreme;
  const double sum = choice.contributors * choice.size * unit_;
  if (op_ != Op::kAvg) return sum;
  return traits(dtype_).is_float() ? sum / world_ : std::floor(sum / world_);
}

double Pattern::moved(std::uint32_t source, std::uint32_t slot) const noexcept {
  const std::uint32_t values = traits(dtype_).moved_values;
  // Neighbours share the draw and count on from it; ranks that are `values` apart have another.
  Draw draw(mix(mix(turn_) + slot) + source / values);
  const std::uint32_t v = (draw.below(values) + source % values) % values;
  if (traits(dtype_).size == 1 && traits(dtype_).is_float()) return small_float(v);
  const std::uint32_t middle = traits(dtype_).is_signed ? values / 2 : 0;
  return static_cast<double>(v) - middle;
}

Pattern::Tolerance Pattern::tolerance() const noexcept {
  if (op_ != Op::kAvg || !traits(dtype_).is_float() || divides_exactly(dtype_, world_)) return {};
  const DtypeTraits& t = traits(dtype_);
  const double smallest_normal = std::ldexp(1.0, smallest_exponent(t));
  const bool coarse = 1.0 / world_ < smallest_normal;
  return {2, coarse ? std::fabs(rounded_share(dtype_, world_) * world_ - 1) : 0.0};
}

std::uint32_t Pattern::turn_of(std::uint32_t rank, std::uint32_t slot) const noexcept {
  const auto x = static_cast<std::uint32_t>(number_of(rank, slot, 0));
  return x < fewest_ ? 0 : (world_ - x + fewest_ - 1) / fewest_;
}

std::uint64_t turns(Dtype dtype, Op op, std::uint32_t world, std::uint64_t count,
                    std::uint64_t most) noexcept {
  if (op == Op::kNone || count == 0) return 1;
  const Pattern pattern(dtype, op, world, 0);
  const auto slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, kSlots));
  std::uint32_t last = 0;
  for (std::uint32_t rank = 0; rank < world && last + 1 < most; ++rank) {
    std::uint32_t first = world;
    for (std::uint32_t i = 0; i < slots && first > last; ++i) {
      first = std::min(first, pattern.turn_of(rank, slot_of(i)));
    }
    last = std::max(last, first);
  }
  return std::min(std::uint64_t{last} + 1, most);
}

}  // namespace oddrank::bench

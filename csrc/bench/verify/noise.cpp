// The bits of random values, and host memory full of them.
#include "bench/verify/noise.hpp"

#include <algorithm>
#include <cstring>

namespace oddrank::bench {
namespace {

// Repeats the lowest `size` bytes over 8.
std::uint64_t repeated(std::uint64_t bits, unsigned size) noexcept {
  for (unsigned have = size; have < 8; have *= 2) bits |= bits << (8 * have);
  return bits;
}

}  // namespace

Noise noise_of(Dtype dtype, Op op, bool low) noexcept {
  const DtypeTraits& t = traits(dtype);
  const bool product = op == Op::kProd;
  if (!t.is_float()) return {~std::uint64_t{0}, product ? repeated(1, t.size) : 0};  // odd
  const std::uint64_t sign = std::uint64_t{1} << (8 * t.size - 1);
  const std::uint64_t mantissa = product ? 0 : (std::uint64_t{1} << t.mantissa_bits) - 1;
  const std::uint64_t exponent =
      low && !product ? 2 : (std::uint64_t{1} << (t.exponent_bits - 1)) - 1;
  return {repeated(sign | mantissa, t.size), repeated(exponent << t.mantissa_bits, t.size)};
}

void fill_with_noise(void* address, std::size_t bytes, const Noise& noise) noexcept {
  auto* const data = static_cast<std::byte*>(address);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = noise_word(noise, at / 8);
    std::memcpy(data + at, &word, std::min<std::size_t>(8, bytes - at));
  }
}

}  // namespace oddrank::bench

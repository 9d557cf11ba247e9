// Packs and unpacks frames and checks every size before it is used. Makes the proofs, by SHA-256
// (FIPS 180-4) and HMAC (RFC 2104).
#include "control/wire.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace oddrank::control {
namespace {

constexpr std::size_t kBlock = 64;  // bytes that SHA-256 takes at a time

constexpr std::array<std::uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using Digest = std::array<std::uint32_t, 8>;

void add_block(Digest& digest, const char* bytes) noexcept {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t byte = 0; byte < 4; ++byte) {
      w[i] = w[i] << 8 | static_cast<unsigned char>(bytes[4 * i + byte]);
    }
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = w[i - 15], b = w[i - 2];
    const std::uint32_t low = std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3;
    const std::uint32_t high = std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10;
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
  auto [a, b, c, d, e, f, g, h] = digest;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t high = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t first = h + high + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
    const std::uint32_t low = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t second = low + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const Digest more{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < digest.size(); ++i) digest[i] += more[i];
}

std::string sha256(std::string message) {
  const std::uint64_t bits = std::uint64_t{message.size()} * 8;
  message.push_back(static_cast<char>(0x80));
  message.append((kBlock + 56 - message.size() % kBlock) % kBlock, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) message.push_back(static_cast<char>(bits >> shift));
  Digest digest{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  for (std::size_t at = 0; at < message.size(); at += kBlock) add_block(digest, &message[at]);
  std::string bytes;
  for (const std::uint32_t word : digest) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(word >> shift));
  }
  return bytes;
}

// Includes the role, so that neither side accepts its own proof sent back.
std::string proof(std::string_view role, std::string_view token, std::string_view guard_nonce,
                  std::string_view root_nonce) {
  std::string message(role);
  message.append("|").append(guard_nonce).append("|").append(root_nonce);
  return hmac_sha256(token, message);
}

}  // namespace

std::size_t frame_limit(std::uint8_t kind) noexcept {
  if (kind < static_cast<std::uint8_t>(FrameKind::kHello) ||
      kind > static_cast<std::uint8_t>(FrameKind::kProof)) {
    return 0;
  }
  return kind == static_cast<std::uint8_t>(FrameKind::kResult) ? kResultFrame : kSmallFrame;
}

void Packer::number(std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
}

std::uint64_t Unpacker::number(std::size_t bytes) noexcept {
  if (!ok_ || rest_.size() < bytes) {
    ok_ = false;
    return 0;
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
  }
  rest_.remove_prefix(bytes);
  return value;
}

std::string Unpacker::text(std::size_t limit) {
  const std::size_t size = next<std::uint32_t>();
  if (!ok_ || size > limit || size > rest_.size()) {
    ok_ = false;
    return {};
  }
  std::string value(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return value;
}

std::string Unpacker::rest() {
  std::string value(ok_ ? rest_ : std::string_view{});
  rest_ = {};
  return value;
}

std::string encode(FrameKind kind, std::string_view payload) {
  std::string bytes = packed(static_cast<std::uint32_t>(payload.size() + 1), kind);
  return bytes.append(payload);
}

void FrameReader::feed(const char* bytes, std::size_t size) {
  if (broken_) return;
  if (at_ == bytes_.size()) {
    bytes_.clear();
    at_ = 0;
  } else if (at_ > kSmallFrame && at_ > bytes_.size() / 2) {
    bytes_.erase(0, at_);
    at_ = 0;
  }
  bytes_.append(bytes, size);
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(bytes_).substr(at_);
  if (broken_ || rest.size() < 5) return std::nullopt;
  const std::size_t length = Unpacker(rest).next<std::uint32_t>();
  const auto kind = static_cast<std::uint8_t>(rest[4]);
  if (length == 0 || length > std::min(limit_, frame_limit(kind))) {
    broken_ = true;
    std::string().swap(bytes_);
    at_ = 0;
    return std::nullopt;
  }
  if (rest.size() < length + 4) return std::nullopt;
  Frame frame{static_cast<FrameKind>(kind), std::string(rest.substr(5, length - 1))};
  at_ += length + 4;
  if (at_ == bytes_.size()) {
    std::string().swap(bytes_);  // idle connections hold no buffer: there may be 10,000
    at_ = 0;
  }
  return frame;
}

std::string root_proof(std::string_view token, std::string_view guard_nonce,
                       std::string_view root_nonce) {
  return proof("oddrank root", token, guard_nonce, root_nonce);
}

std::string guard_proof(std::string_view token, std::string_view guard_nonce,
                        std::string_view root_nonce) {
  return proof("oddrank guard", token, guard_nonce, root_nonce);
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  std::string inner = key.size() > kBlock ? sha256(std::string(key)) : std::string(key);
  inner.resize(kBlock, '\0');
  std::string outer = inner;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return sha256(outer + sha256(inner.append(message)));
}

bool same_secret(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return different == 0;
}

}  // namespace oddrank::control

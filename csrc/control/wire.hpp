// The control plane's messages: frames, little-endian, bounded in length, safe to read from unknown
// peers; and the proofs by which peers get to know each other.
//
//   u32 length of kind and payload | u8 kind | payload
//
// worker -> guard    address, result, fail, ask clock
// guard -> worker    go, end, clock
// guard -> root      knock, hello, state, result, fail, ping, ask clock
// root -> guard      proof, welcome, go, end, report, roster, pong, clock
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace oddrank::control {

inline constexpr std::size_t kSmallFrame = std::size_t{64} << 10;
inline constexpr std::size_t kResultFrame = std::size_t{64} << 20;
// Longest frame of a connection whose hello has not been accepted yet.
inline constexpr std::size_t kStrangerFrame = 2048;
// Most parts of a list: each takes many times the memory of its bytes in a frame.
inline constexpr std::uint32_t kMostParts = 4096;

enum class FrameKind : std::uint8_t {
  kHello = 1,
  kWelcome,
  kAddress,
  kGo,
  kEnd,
  kState,
  kResult,
  kFail,
  kPing,
  kPong,
  kReport,
  kRoster,
  kAskClock,
  kClock,
  kKnock,
  kProof,
};

// Returns the largest length (kind and payload) of a frame of this kind; 0 for unknown kinds.
std::size_t frame_limit(std::uint8_t kind) noexcept;

struct Frame {
  FrameKind kind;
  std::string payload;
};

// Builds a payload of fields: numbers, enums as a byte, texts and lists behind their size. A
// message lists its fields for a Packer and an Unpacker.
class Packer {
 public:
  Packer& operator()(const auto&... fields) {
    (put(fields), ...);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  void number(std::uint64_t value, std::size_t bytes);
  void put(std::integral auto value) { number(static_cast<std::uint64_t>(value), sizeof value); }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void put(Enum value) { number(static_cast<std::uint64_t>(value), 1); }
  void put(std::string_view text) {
    number(text.size(), 4);
    bytes_.append(text);
  }
  template <typename Part>
  void put(std::vector<Part> parts) {
    number(parts.size(), 4);
    for (Part& part : parts) {
      if constexpr (std::is_same_v<Part, std::string>) {
        put(part);
      } else {
        part.fields(*this);
      }
    }
  }

  std::string bytes_;
};

std::string packed(const auto&... fields) { return Packer()(fields...).take(); }

// Reads a payload, never past its end. After the first field that does not fit ok() stays false,
// and every field is zero or empty.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes, std::size_t longest_text = kSmallFrame) noexcept
      : rest_(bytes), longest_text_(longest_text) {}
  void operator()(auto&... fields) { (get(fields), ...); }
  template <std::integral Number>
  Number next() noexcept {
    return static_cast<Number>(number(sizeof(Number)));
  }
  // Reads a text of at most `limit` bytes; a longer one makes ok() false.
  std::string text(std::size_t limit);
  // Returns all bytes that are left.
  std::string rest();
  bool ok() const noexcept { return ok_; }

 private:
  std::uint64_t number(std::size_t bytes) noexcept;
  template <std::integral Number>
  void get(Number& value) {
    value = next<Number>();
  }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void get(Enum& value) { value = static_cast<Enum>(number(1)); }
  void get(std::string& value) { value = text(longest_text_); }
  template <typename Part>
  void get(std::vector<Part>& parts) {
    auto left = next<std::uint32_t>();
    ok_ = ok_ && left <= kMostParts;
    for (; left > 0 && ok_; --left) {
      Part part;
      if constexpr (std::is_same_v<Part, std::string>) {
        get(part);
      } else {
        part.fields(*this);
      }
      if (ok_) parts.push_back(std::move(part));
    }
  }

  std::string_view rest_;
  std::size_t longest_text_;
  bool ok_ = true;
};

// Returns the bytes of one frame.
std::string encode(FrameKind kind, std::string_view payload);

// Assembles frames from bytes as they arrive. After a frame that is too long or of an unknown kind
// broken() stays true.
class FrameReader {
 public:
  // Frames may be as long as `limit` and frame_limit() of their kind both allow.
  explicit FrameReader(std::size_t limit = kResultFrame) : limit_(limit) {}
  void raise_limit(std::size_t limit) noexcept { limit_ = limit; }
  void feed(const char* bytes, std::size_t size);
  std::optional<Frame> next();
  bool broken() const noexcept { return broken_; }

 private:
  std::size_t limit_;
  std::string bytes_;
  std::size_t at_ = 0;
  bool broken_ = false;
};

// Guards and root prove that they know the job's token, without sending it: HMAC-SHA256 (RFC 2104,
// FIPS 180-4) of both sides' nonces.
std::string root_proof(std::string_view token, std::string_view guard_nonce,
                       std::string_view root_nonce);
std::string guard_proof(std::string_view token, std::string_view guard_nonce,
                        std::string_view root_nonce);

// Returns the 32 bytes of the code.
std::string hmac_sha256(std::string_view key, std::string_view message);

// Compares in a time that depends only on the sizes.
bool same_secret(std::string_view a, std::string_view b) noexcept;

}  // namespace oddrank::control

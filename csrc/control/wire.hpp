// What the control plane sends: frames, little-endian, bounded in length, safe to read from unknown
// peers; and the proofs by which peers get to know each other.
//
//   u32 length of kind and payload | u8 kind | payload
//
// worker -> guard    address, result, fail, ask clock
// guard -> worker    go, end, clock
// guard -> root      knock, hello, state, result, fail, ping, ask clock
// root -> guard      proof, welcome, go, end, report, roster, pong, clock
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace oddrank::control {

inline constexpr std::size_t kSmallFrame = std::size_t{64} << 10;
inline constexpr std::size_t kResultFrame = std::size_t{64} << 20;
// Longest frame of a connection whose hello has not been accepted yet.
inline constexpr std::size_t kStrangerFrame = 2048;

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

// Builds a payload.
class Packer {
 public:
  Packer& u8(std::uint8_t value);
  Packer& u32(std::uint32_t value);
  Packer& u64(std::uint64_t value);
  Packer& i32(std::int32_t value) { return u32(static_cast<std::uint32_t>(value)); }
  Packer& i64(std::int64_t value) { return u64(static_cast<std::uint64_t>(value)); }
  Packer& text(std::string_view value);
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads a payload, never past its end. After the first field that does not fit ok() stays false,
// and every field is zero or empty.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) noexcept : rest_(bytes) {}
  std::uint8_t u8() noexcept;
  std::uint32_t u32() noexcept;
  std::uint64_t u64() noexcept;
  std::int32_t i32() noexcept { return static_cast<std::int32_t>(u32()); }
  std::int64_t i64() noexcept { return static_cast<std::int64_t>(u64()); }
  // Reads a text of at most `limit` bytes; a longer one makes ok() false.
  std::string text(std::size_t limit = 1024);
  // Returns all bytes that are left.
  std::string rest();
  bool ok() const noexcept { return ok_; }

 private:
  std::uint64_t number(std::size_t bytes) noexcept;
  std::string_view rest_;
  bool ok_ = true;
};

// Two visitors of a message's fields(): PackFields and UnpackFields.
class PackFields {
 public:
  void operator()(const auto&... fields) { (put(fields), ...); }
  std::string take() { return out_.take(); }

 private:
  void put(bool value) { out_.u8(value ? 1 : 0); }
  void put(std::int32_t value) { out_.i32(value); }
  void put(std::uint32_t value) { out_.u32(value); }
  void put(std::int64_t value) { out_.i64(value); }
  void put(std::uint64_t value) { out_.u64(value); }
  void put(const std::string& value) { out_.text(value); }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void put(Enum value) { out_.u8(static_cast<std::uint8_t>(value)); }
  template <typename Part>
  void put(std::vector<Part> parts) {
    out_.u32(static_cast<std::uint32_t>(parts.size()));
    for (Part& part : parts) part.fields(*this);
  }
  Packer out_;
};

class UnpackFields {
 public:
  explicit UnpackFields(std::string_view payload) noexcept : in_(payload) {}
  void operator()(auto&... fields) { (get(fields), ...); }
  bool ok() const noexcept { return in_.ok(); }

 private:
  void get(bool& value) { value = in_.u8() != 0; }
  void get(std::int32_t& value) { value = in_.i32(); }
  void get(std::uint32_t& value) { value = in_.u32(); }
  void get(std::int64_t& value) { value = in_.i64(); }
  void get(std::uint64_t& value) { value = in_.u64(); }
  void get(std::string& value) { value = in_.text(kSmallFrame); }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void get(Enum& value) { value = static_cast<Enum>(in_.u8()); }
  template <typename Part>
  void get(std::vector<Part>& parts) {
    for (std::uint32_t left = in_.u32(); left > 0 && in_.ok(); --left) {
      Part part;
      if constexpr (std::is_same_v<Part, std::string>) {
        get(part);
      } else {
        part.fields(*this);
      }
      if (in_.ok()) parts.push_back(part);
    }
  }
  Unpacker in_;
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

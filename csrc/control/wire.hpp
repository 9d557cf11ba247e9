// The frames of the control plane: little-endian, length-limited, and safe to read from strangers.
//
//   u32 length of what follows | u8 kind | payload
//
// worker -> guard    address, result, fail, ask clock guard -> worker   go, end, clock
// guard  -> root     hello, state, result, fail, ping root  -> guard    welcome, go, end, report,
//                    ask clock                                          roster, pong, clock
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oddrank::control {

// The version is the first field of hello: ranks with another oddrank are told, not misread.
inline constexpr std::uint32_t kWireVersion = 2;
inline constexpr std::size_t kSmallFrame = std::size_t{64} << 10;
inline constexpr std::size_t kResultFrame = std::size_t{64} << 20;
// What a connection may send before its hello has been accepted.
inline constexpr std::size_t kStrangerFrame = 2048;

enum class Kind : std::uint8_t {
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
};

// The largest length (kind and payload) that a frame of this kind may have; 0 for unknown kinds.
std::size_t frame_limit(std::uint8_t kind) noexcept;

struct Frame {
  Kind kind;
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

// Reads a payload. Never reads past the end: the first field that does not fit makes ok() false for
// good and every later field zero or empty.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) noexcept : rest_(bytes) {}
  std::uint8_t u8() noexcept;
  std::uint32_t u32() noexcept;
  std::uint64_t u64() noexcept;
  std::int32_t i32() noexcept { return static_cast<std::int32_t>(u32()); }
  std::int64_t i64() noexcept { return static_cast<std::int64_t>(u64()); }
  // At most `limit` bytes; longer ones are not ok.
  std::string text(std::size_t limit = 1024);
  // Everything that is left.
  std::string rest();
  bool ok() const noexcept { return ok_; }

 private:
  std::uint64_t number(std::size_t bytes) noexcept;
  std::string_view rest_;
  bool ok_ = true;
};

// The bytes of one frame.
std::string encode(Kind kind, std::string_view payload);

// Takes bytes as they come and gives whole frames. A frame that is too long or of an unknown kind
// makes broken() true for good.
class FrameReader {
 public:
  // `limit` bounds every frame below the limit of its kind.
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

}  // namespace oddrank::control

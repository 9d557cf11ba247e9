// Packs and unpacks frames; checks every size before it is used.
#include "control/wire.hpp"

#include <algorithm>

namespace oddrank::control {

std::size_t frame_limit(std::uint8_t kind) noexcept {
  if (kind < static_cast<std::uint8_t>(FrameKind::kHello) ||
      kind > static_cast<std::uint8_t>(FrameKind::kProof)) {
    return 0;
  }
  return kind == static_cast<std::uint8_t>(FrameKind::kResult) ? kResultFrame : kSmallFrame;
}

namespace {
void append_number(std::string& to, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}
}  // namespace

Packer& Packer::u8(std::uint8_t value) {
  append_number(bytes_, value, 1);
  return *this;
}
Packer& Packer::u32(std::uint32_t value) {
  append_number(bytes_, value, 4);
  return *this;
}
Packer& Packer::u64(std::uint64_t value) {
  append_number(bytes_, value, 8);
  return *this;
}
Packer& Packer::text(std::string_view value) {
  u32(static_cast<std::uint32_t>(value.size()));
  bytes_.append(value);
  return *this;
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
std::uint8_t Unpacker::u8() noexcept { return static_cast<std::uint8_t>(number(1)); }
std::uint32_t Unpacker::u32() noexcept { return static_cast<std::uint32_t>(number(4)); }
std::uint64_t Unpacker::u64() noexcept { return number(8); }

std::string Unpacker::text(std::size_t limit) {
  const std::size_t size = u32();
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
  std::string bytes;
  bytes.reserve(payload.size() + 5);
  append_number(bytes, payload.size() + 1, 4);
  bytes.push_back(static_cast<char>(kind));
  bytes.append(payload);
  return bytes;
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
  const std::size_t length = Unpacker(rest).u32();
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

}  // namespace oddrank::control

// Fuzzes the cutting of logs: each byte comes once, whatever the chunks, and terminals obey
// nothing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "logs/pieces.hpp"
#include "logs/raw_text.hpp"

namespace {

using oddrank::logs::Piece;

void require(bool holds) {
  if (!holds) std::abort();
}

std::string pieces(const std::string_view log, std::size_t chunk, std::size_t longest) {
  std::string_view text = log;
  oddrank::logs::PieceReader reader(longest);
  std::string whole, bytes;
  const auto take = [&whole, &bytes](const Piece& piece) {
    require(piece.who.text <= piece.text.size());
    bytes += piece.text;
    whole += std::string(piece.text) + '|' + std::to_string(piece.who.rank) + '|';
  };
  for (; !text.empty(); text.remove_prefix(std::min(chunk, text.size()))) {
    reader.feed(text.substr(0, chunk), take);
  }
  reader.finish(take);
  require(bytes == log);
  return whole;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::size_t chunk = data[0] % 16 + 1U;
  constexpr std::size_t kAll = 1u << 20;
  require(pieces(text, text.size() + 1, kAll) == pieces(text, chunk, kAll));
  // Where a long line is cut depends on the chunks; that each byte comes once does not.
  const std::size_t longest = data[0] / 16 * 8 + 1U;
  pieces(text, text.size() + 1, longest);
  pieces(text, chunk, longest);
  std::string clean;
  oddrank::logs::append_for_terminal(text, clean);
  for (const char c : clean) {
    const auto byte = static_cast<unsigned char>(c);
    require((byte >= 0x20 && byte != 0x7f) || byte == '\t');
  }
  return 0;
}

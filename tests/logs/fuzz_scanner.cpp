// The fuzzer's target for the scanner of logs: any bytes, in chunks of any size. The chunks must
// not matter, and no text may be longer than allowed or hold control characters.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "logs/scanner.hpp"

namespace {

using oddrank::logs::Limits;
using oddrank::logs::Match;
using oddrank::logs::Needles;
using oddrank::logs::Scan;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Needles needles(
      {{"Watchdog", 0}, {"Trac", 4}, {"Last error:", -2}, {"aaaa", 1}, {"Killed", 0}});
  if (size < 2) return 0;
  Limits limits;
  limits.text = 64;
  limits.matches = 8;
  limits.speakers = 4;
  const std::size_t chunk = data[0] + std::size_t{1};
  const bool pieces = data[1] % 2 == 0;
  if (pieces) limits.line = 32;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Scan found = scan_text(text, needles, limits, chunk);
  const auto ends = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  require(found.lines == ends + (text.empty() || text.ends_with('\n') ? 0 : 1));
  require(found.speakers.size() <= limits.speakers);
  require(found.matches.size() <= needles.size() * limits.matches);
  std::uint64_t line = 0;
  for (const Match& match : found.matches) {
    require(match.line >= line && match.line <= found.lines);
    line = match.line;
    require(match.needle < needles.size() && match.text.size() <= limits.text);
    for (const char c : match.text) require(static_cast<unsigned char>(c) >= 0x20 || c == '\t');
  }
  if (!pieces) {
    const Scan whole = scan_text(text, needles, limits, text.size() + 1);
    require(whole.lines == found.lines && whole.matches.size() == found.matches.size());
    for (std::size_t i = 0; i < found.matches.size(); ++i) {
      require(whole.matches[i].text == found.matches[i].text);
      require(whole.matches[i].writer == found.matches[i].writer);
    }
  }
  return 0;
}

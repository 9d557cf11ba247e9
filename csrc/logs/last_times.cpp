// Remembers each writer's last time, up to the last line that is wanted.
#include "logs/last_times.hpp"

#include <algorithm>
#include <optional>

#include "logs/pieces.hpp"
#include "logs/timestamps.hpp"
#include "os/whole_file.hpp"

namespace oddrank::logs {

std::vector<std::int64_t> last_times(
    const std::string& path, const std::vector<std::pair<std::uint64_t, std::size_t>>& wanted,
    std::int64_t reference_ns, WriterNumbers::Ask number) {
  std::vector<std::int64_t> found, last;
  WriterNumbers numbers(std::move(number));
  std::optional<Timestamp::Clock> clock;
  const auto take = [&](const Piece& piece) {
    const std::size_t writer = numbers(piece.who);
    last.resize(std::max(last.size(), writer + 1));
    for (; found.size() < wanted.size() && wanted[found.size()].first <= piece.line;) {
      const std::size_t of = wanted[found.size()].second;
      found.push_back(of < last.size() ? last[of] : 0);
    }
    const auto time = find_time(piece.said, reference_ns);
    if (!time || time->ns <= 0 || time->clock == Timestamp::Clock::boot) return;
    if (clock.value_or(time->clock) != time->clock) return;
    clock = time->clock;
    last[writer] = std::max(last[writer], time->ns);
  };
  PieceReader reader;
  struct stat info {};
  read_chunks(open_regular(path, info), path, [&](std::string_view chunk) {
    reader.feed(chunk, take);
    return found.size() < wanted.size();
  });
  reader.finish(take);
  found.resize(wanted.size());
  return found;
}

}  // namespace oddrank::logs

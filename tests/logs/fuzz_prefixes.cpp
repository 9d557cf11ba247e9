// The fuzzer's target for prefixes and times: any bytes as one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "logs/prefixes.hpp"
#include "logs/timestamps.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

bool inside(std::string_view part, std::string_view line) {
  const std::less_equal<const char*> order;
  return part.empty() || (order(line.data(), part.data()) &&
                          order(part.data() + part.size(), line.data() + line.size()));
}

void check(const oddrank::logs::Prefix& who, std::string_view line) {
  require(who.text <= line.size());
  require(inside(who.host, line) && inside(who.pod, line));
  for (const std::int64_t each : {who.rank, who.local_rank, who.task, who.host_number, who.pid}) {
    require(each >= -1 && each < 10'000'000'000);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  check(oddrank::logs::find_prefix(line), line);
  check(oddrank::logs::find_prefix_behind_bar(line), line);
  for (std::size_t at = 0; (at = oddrank::logs::next_torn(line, at)) != line.npos; ++at) {
    // A number too long for a rank is no prefix.
    require(!oddrank::logs::find_prefix(line.substr(at)).empty() || line.substr(at).find(']') > 12);
  }
  for (const std::int64_t now : {std::int64_t{0}, std::int64_t{1'767'312'000'000'000'000}}) {
    const auto time = oddrank::logs::find_time(line, now);
    // From 1969, for lines without a year, to 2199.
    require(!time || (time->ns > -40'000'000'000'000'000 && time->ns < 7'300'000'000'000'000'000));
  }
  return 0;
}

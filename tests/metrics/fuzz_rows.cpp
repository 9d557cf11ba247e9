// The fuzzer's target for the reader of training logs and its judge: any bytes, in chunks of any
// size. The chunks must not matter for the rows, and what is kept must stay within its limits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string_view>

#include "metrics/job.hpp"
#include "metrics/reader.hpp"

namespace {

using oddrank::metrics::Job;
using oddrank::metrics::Reader;
using oddrank::metrics::Row;
using oddrank::metrics::Verdicts;

void require(bool holds) {
  if (!holds) std::abort();
}

std::deque<Row> rows_of(std::string_view text, std::size_t chunk) {
  Reader reader(0, 0);
  std::deque<Row> rows;
  for (std::size_t at = 0; at < text.size(); at += chunk) reader.feed(text.substr(at, chunk), rows);
  reader.finish(rows);
  return rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t chunk = data[0] + std::size_t{1};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::size_t steps = 0;
  std::size_t pieces = 0;
  for (const Row& row : rows_of(text, text.size())) steps += row.kind == Row::Kind::step ? 1 : 0;
  for (const Row& row : rows_of(text, chunk)) pieces += row.kind == Row::Kind::step ? 1 : 0;
  require(steps == pieces);
  Job job({0, 0}, {4, true});
  job.feed(0, text);
  job.feed(1, text.substr(text.size() / 2));
  job.end(0);
  job.end(1);
  job.flush();
  job.silence(1e6);
  require(job.points().size() <= 2 * steps + 4);
  require(job.verdicts().suspects().size() <= Verdicts::kMostSuspects);
  require(job.take_csv().empty() == (job.verdicts().figures().rows == 0));
  return 0;
}

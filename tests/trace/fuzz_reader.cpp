// Reads everything of a file that anybody may have made. For libFuzzer:
//
//   clang++ -std=c++20 -g -fsanitize=fuzzer,address,undefined -Icsrc tests/trace/fuzz_reader.cpp
//       csrc/trace/read/*.cpp csrc/trace/record/*.cpp csrc/base/*.cpp -o fuzz_reader
//
// test_read_mutations.cpp feeds it without libFuzzer.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "trace/read/clock.hpp"
#include "trace/read/collectives.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/export.hpp"
#include "trace/read/file.hpp"
#include "trace/read/records.hpp"
#include "trace/read/stats.hpp"
#include "trace/read/threads.hpp"

namespace {

// Touches every byte that a view shows, for the address sanitizer.
std::size_t sum(const auto& bytes) {
  std::size_t total = 0;
  for (const auto byte : bytes) total += static_cast<unsigned char>(byte);
  return total;
}

std::size_t read_everything(const oddrank::trace::RecordFile& file) {
  namespace trace = oddrank::trace;
  std::size_t total = sum(file.process().host) + file.counters().marks_claimed;
  const trace::Clock clock(file.clocks());
  const trace::Dictionary dictionary(file);
  for (const trace::Code& code : dictionary.codes()) {
    total += sum(code.qualified_name) + sum(code.file) + sum(code.linetable);
  }
  for (const trace::Thread& thread : trace::read_threads(file).list) {
    for (const trace::Place place : thread.stack) {
      total += dictionary.code(place.code()) != nullptr ? 1 : 0;
    }
    for (const trace::Moment& moment : trace::read_events(file, thread.slot, ~0ULL).list) {
      total += clock.realtime_ns(moment.tsc).has_value() ? 1 : 0;
    }
  }
  for (const trace::Mark& mark : trace::read_marks(file).list) total += sum(mark.text);
  for (const auto& record : trace::read_collectives(file).list) {
    total += sum(dictionary.group(record.group)) + sum(dictionary.operation(record.operation));
  }
  for (const auto& one : trace::read_joined_collectives(file)) {
    total += sum(trace::name_of(one.state));
  }
  total += trace::read_stats(file, 3).codes.size();
  return total + trace::read_open_collectives(file).size();
}

// All text that is made of it, with a clock for one that has none.
std::size_t export_everything(oddrank::trace::RecordFile file) {
  oddrank::trace::Export record(std::move(file));
  if (!record.start({1, 0, {{0, 0, 0}, {2500, 0, 1000}}, true})) return 0;
  std::size_t total = 0;
  for (std::string text = record.chunk(); !text.empty(); text = record.chunk()) total += sum(text);
  return total;
}

}  // namespace

// 0 where the input was read, 1 where it was refused; libFuzzer wants 0.
int read_input(const std::uint8_t* data, std::size_t size) {
  oddrank::Fd fd(::memfd_create("oddrank-fuzz", MFD_CLOEXEC));
  if (!fd || ::write(fd.get(), data, size) != static_cast<ssize_t>(size)) return 1;
  try {
    oddrank::trace::RecordFile file(std::move(fd), "of the fuzzer");
    volatile std::size_t used = read_everything(file);
    used = export_everything(std::move(file));
    static_cast<void>(used);
  } catch (const oddrank::Error&) {
    return 1;
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static_cast<void>(read_input(data, size));
  return 0;
}

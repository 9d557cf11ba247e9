// The fuzzer's target: reads and exports an input, a record file in memory, in every way.
//
// The linker replaces open(), fstat(), pread() and close() by the functions below, so that an input
// costs no system call. Facts about processes are constants.
// `make fuzz` runs it. test_read_mutations.cpp does the same with real files, without libFuzzer.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

#include "os/error.hpp"
#include "os/proc.hpp"
#include "read_everything.hpp"
#include "record_mutation.hpp"

namespace {

constexpr const char* kPath = "of the fuzzer";
constexpr int kDescriptor = 1'000'000;
std::span<const std::uint8_t> input;

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the linker's names
extern "C" int __wrap_open(const char* /*path*/, int /*flags*/, ...) { return kDescriptor; }
extern "C" int __wrap_close(int /*fd*/) { return 0; }
extern "C" int __wrap_fstat(int /*fd*/, struct stat* found) {
  *found = {};
  found->st_mode = S_IFREG | 0600;
  found->st_size = static_cast<off_t>(input.size());
  return 0;
}
extern "C" ssize_t __wrap_pread(int /*fd*/, void* to, std::size_t size, off_t offset) {
  const auto at = static_cast<std::uint64_t>(offset);
  if (at >= input.size()) return 0;
  const std::size_t got = std::min(size, input.size() - at);
  if (got > 0) std::memcpy(to, input.data() + at, got);
  return static_cast<ssize_t>(got);
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)

// Replacements for os/proc.cpp, which is not linked.
namespace oddrank {

std::string boot_id() { return "boot"; }
std::uint64_t pid_namespace() noexcept { return 7; }
std::size_t read_small_file(const char*, char*, std::size_t) noexcept { return 0; }
ProcStat read_stat(pid_t pid) noexcept {
  ProcStat stat;
  stat.state = pid % 2 != 0 ? 'S' : 'Z';
  stat.start_time = 1234;
  return stat;
}

}  // namespace oddrank

namespace {

// Checks for JSON objects of printable text, each after a comma and a line end.
bool is_json(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 && (byte != '\n' || in_string)) return false;
    if (in_string) {
      if (byte == '"') in_string = false;
      if (byte == '\\' && (++i == text.size() || std::strchr("\"\\u", text[i]) == nullptr)) {
        return false;
      }
    } else if (byte == '"') {
      in_string = true;
    } else if (byte == '{') {
      ++depth;
    } else if (byte == '}' && depth-- == 0) {
      return false;
    }
  }
  return depth == 0 && !in_string;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return oddrank::trace::mutate_record(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace trace = oddrank::trace;
  input = {data, size};
  try {
    trace::RecordFile file(kPath);
    volatile std::size_t used = trace::read_names(file);
    const bool lines = file.process().pid % 3 == 0;
    if (!is_json(trace::export_text(std::move(file), lines))) std::abort();
    used = trace::read_snapshot(kPath).threads.size();
    used = trace::read_history(kPath, 50).events.size();
    static_cast<void>(used);
  } catch (const oddrank::Error&) {
    // Refusing the file with one line is correct.
  }
  return 0;
}

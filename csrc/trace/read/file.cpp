// Opens a record and checks its header before anything in it is used. Fits a line of its ticks to
// the monotonic clock and shifts it to the last wall-clock reading.
#include "trace/read/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "os/clock.hpp"
#include "os/error.hpp"
#include "os/proc.hpp"

namespace oddrank::trace {
namespace {

constexpr std::uint64_t kAnyStride = kLargestFile;

// Ticks per ns. Real counters run at 19.2 MHz (some arm64) to some GHz; others are a broken file's.
constexpr double kSlowest = 0.001;
constexpr double kFastest = 100;
constexpr std::uint64_t kHalfRange = 4'000'000'000'000'000'000;  // two of them fit into an int64

// Returns the hook's name; empty while arm() changes it: a copy may have parts of two names.
std::string hook_of(const Header& header) {
  const auto name = text_of(header.hook);
  const bool whole = std::ranges::find(kHooks, name) != std::end(kHooks);
  return whole ? std::string(name) : std::string();
}

Fd open_for_reading(const std::string& path) {
  // O_NONBLOCK: open() of a pipe would wait for a writer.
  Fd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (fd) return fd;
  const int number = errno;
  const char* advice = "look whether the job's folder is still there";
  if (number == ELOOP) advice = "it is a symbolic link: name the file itself";
  if (number == EACCES || number == EPERM) advice = "run as the job's user or as root";
  throw SystemError("cannot open the record " + path + " (" + advice + ")", number);
}

// Copies whole words that other threads may write meanwhile. The acquire order makes data that a
// word publishes visible to later loads.
void copy_words(std::span<const unsigned char> from, unsigned char* to) {
  for (; !from.empty(); from = from.subspan(std::min(from.size(), sizeof(Word)))) {
    const auto* word = reinterpret_cast<const Word*>(from.data());
    const std::uint64_t value = word->load(std::memory_order_acquire);
    std::memcpy(to, &value, std::min(from.size(), sizeof value));
    to += sizeof value;
  }
}

// Reads the clocks a few times and keeps the fastest reading: in the others this thread may have
// been interrupted between two clocks.
ClockPicture picture_of_now() noexcept {
  constexpr int kTries = 5;
  ClockPicture best;
  std::uint64_t least = ~std::uint64_t{0};
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t begin = read_tsc();
    const ClockPicture one{begin, static_cast<std::uint64_t>(monotonic_ns()),
                           static_cast<std::uint64_t>(clock_ns(CLOCK_REALTIME))};
    const std::uint64_t took = read_tsc() - begin;
    if (took >= least) continue;
    least = took;
    best = one;
  }
  return best;
}

}  // namespace

Liveness liveness_of(const Process& process) {
  const bool here = is_this_boot(process.boot_id) && process.pid_namespace == pid_namespace();
  if (!here) return Liveness::kUnknown;
  const ProcStat stat = read_stat(static_cast<pid_t>(process.pid));
  // A different start time means that the pid was reused.
  const bool same = stat.state != 0 && stat.start_time == process.start_time;
  return same && !stat.is_zombie() ? Liveness::kAlive : Liveness::kDead;
}

RecordFile::RecordFile(const std::string& path) : RecordFile(open_for_reading(path), path) {}

RecordFile::RecordFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {
  struct stat found {};
  if (::fstat(fd_.get(), &found) != 0) throw_errno("cannot look at the record " + path_);
  if (!S_ISREG(found.st_mode)) {
    throw Error("the record " + path_ + " is not a regular file: name a file that a rank wrote");
  }
  open(static_cast<std::uint64_t>(found.st_size));
}

RecordFile::RecordFile(std::span<const unsigned char> memory, std::string path)
    : memory_(memory), path_(std::move(path)) {
  open(memory_.size());
}

void RecordFile::open(std::uint64_t on_disk) {
  if (on_disk >= sizeof kMagic) {
    copy(0, layout_.bytes.data(), std::min<std::uint64_t>(on_disk, sizeof(Header)));
  }
  const Header& header = layout();
  const std::string fault = fault_of(header, on_disk);
  if (!fault.empty()) throw Error("the record " + path_ + " " + fault);

  check(header.dictionary, "dictionary", 1, 1);
  check(header.threads, "threads", sizeof(ThreadSlot) + sizeof(Word), kAnyStride);
  check(header.rings, "rings", sizeof(Event), kAnyStride);
  check(header.marks, "marks", sizeof(MarkSlot), sizeof(MarkSlot));
  check(header.collectives, "collectives", sizeof(CollectiveSlot), sizeof(CollectiveSlot));
  check(header.open, "open collectives", sizeof(CollectiveSlot), sizeof(CollectiveSlot));
  check(header.timed, "timed calls", sizeof(CollectiveSlot), sizeof(CollectiveSlot));
  check(header.groups, "groups", sizeof(GroupSlot), sizeof(GroupSlot));

  static_cast<ProcessNumbers&>(process_) = header.process;
  process_.host = text_of(header.host);
  process_.boot_id = text_of(header.boot_id);
  process_.job = text_of(header.job);
  process_.hook = hook_of(header);
  process_.arguments = text_of(header.arguments);
}

HeaderCopy RecordFile::header() const {
  HeaderCopy now;
  copy(0, now.bytes.data(), now.bytes.size());
  return now;
}

void RecordFile::check(const Region& region, const char* name, std::uint64_t least_stride,
                       std::uint64_t most_stride) const {
  if (region.count == 0) return;
  // A stride of 1 means bytes; all other regions hold words.
  const bool whole_words = region.stride == 1 || region.stride % sizeof(Word) == 0;
  if (region.stride >= least_stride && region.stride <= most_stride && whole_words &&
      region.offset % sizeof(Word) == 0 && region.offset >= sizeof(Header) &&
      region.bytes() <= size() && region.offset <= size() - region.bytes()) {
    return;
  }
  throw Error("the record " + path_ + " has a broken header: its " + name + ", " +
              std::to_string(region.count) + " times " + std::to_string(region.stride) +
              " bytes at " + std::to_string(region.offset) + ", do not fit into " +
              std::to_string(size()) + " bytes");
}

std::vector<ClockPicture> RecordFile::clocks() const {
  const HeaderCopy first = header();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const HeaderCopy again = header();
  std::vector<ClockPicture> whole;
  for (std::size_t i = 0; i < kClockPairs; ++i) {
    const ClockPair& pair = first->clocks[i];
    const std::uint64_t number = value_of(pair.number);
    // Skip a pair that was never written (0) or is half written (odd).
    if (number == 0 || number % 2 != 0) continue;
    if (std::memcmp(&pair, &again->clocks[i], sizeof pair) != 0) continue;
    whole.push_back({value_of(pair.tsc), value_of(pair.monotonic_ns), value_of(pair.realtime_ns)});
  }
  return whole;
}

void RecordFile::copy(std::uint64_t offset, void* to, std::size_t size) const {
  auto* at = static_cast<unsigned char*>(to);
  if (!memory_.empty()) {
    if (offset > memory_.size() || size > memory_.size() - offset) {
      throw Error("the record " + path_ + " has " + std::to_string(memory_.size()) +
                  " bytes, and its header says more: it is broken");
    }
    copy_words(memory_.subspan(offset, size), at);
    return;
  }
  while (size > 0) {
    const ssize_t got = ::pread(fd_.get(), at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("cannot read the record " + path_);
    if (got == 0) {
      throw Error("the record " + path_ + " ended at byte " + std::to_string(offset) +
                  " while it was read: somebody cut it, copy it again");
    }
    at += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
}

std::vector<std::uint64_t> RecordFile::words(std::uint64_t offset, std::size_t bytes) const {
  std::vector<std::uint64_t> copied((bytes + sizeof(Word) - 1) / sizeof(Word));
  copy(offset, copied.data(), bytes);
  return copied;
}

Clock::Clock(const std::vector<ClockPicture>& pictures) {
  if (pictures.empty()) return;
  const auto [first, last] = std::ranges::minmax_element(pictures, {}, &ClockPicture::tsc);
  if (last->realtime_ns > kHalfRange) return;
  tsc_ = last->tsc;
  realtime_ns_ = static_cast<std::int64_t>(last->realtime_ns);
  knows_ = Knows::kOneMoment;
  if (last->tsc == first->tsc || last->monotonic_ns <= first->monotonic_ns) return;
  const std::uint64_t span = last->monotonic_ns - first->monotonic_ns;
  const double rate = static_cast<double>(last->tsc - first->tsc) / static_cast<double>(span);
  if (rate < kSlowest || rate > kFastest || span > kHalfRange) return;
  tsc_ = first->tsc;
  realtime_ns_ -= static_cast<std::int64_t>(span);
  ticks_per_ns_ = rate;
  knows_ = Knows::kLine;
}

Time Clock::realtime_ns(std::uint64_t tsc) const noexcept {
  if (knows_ == Knows::kNothing) return std::nullopt;
  if (tsc == tsc_) return realtime_ns_;
  if (knows_ == Knows::kOneMoment) return std::nullopt;
  // Use floating point only for the difference: a date in ns has more digits than a double.
  const bool later = tsc > tsc_;
  const auto ticks = static_cast<double>(later ? tsc - tsc_ : tsc_ - tsc);
  const double away = std::round(ticks / ticks_per_ns_);
  if (away > static_cast<double>(kHalfRange)) return std::nullopt;
  const auto step = static_cast<std::int64_t>(away);
  return later ? realtime_ns_ + step : realtime_ns_ - step;
}

std::vector<ClockPicture> clock_pictures(const RecordFile& file) {
  std::vector<ClockPicture> pictures = file.clocks();
  // The counter runs until the machine reboots: with a reading of now, one picture gives a line.
  if (!pictures.empty() && is_this_boot(file.process().boot_id)) {
    ClockPicture now = picture_of_now();
    // The wall clock may have been set since a process died: its own reading of it counts.
    if (liveness_of(file.process()) == Liveness::kDead) {
      const auto own = std::ranges::max_element(pictures, {}, &ClockPicture::tsc);
      now.realtime_ns = own->realtime_ns + (now.monotonic_ns - own->monotonic_ns);
    }
    pictures.push_back(now);
  }
  return pictures;
}

}  // namespace oddrank::trace

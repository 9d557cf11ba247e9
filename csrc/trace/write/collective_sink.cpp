// Maps each collective to the recorder that holds its begin, and sends its end to the same one.
#include "trace/write/collective_sink.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "trace/write/recorder.hpp"

namespace oddrank::trace {
namespace {

// A ticket is the recorder's index in the list and the collective's number in that recorder.
// Indexes are never reused: in a forked child, ends of the parent's collectives find nothing, and
// no end closes another recorder's collective.
constexpr int kNumberBits = 48;
constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kNumberBits) - 1;
// Most recorders in a process and its ancestors by fork. Later recorders record no collectives.
constexpr std::uint32_t kMostRecorders = 1024;
// Collectives between two clock readings: Python events, which also read the clocks, may be rare.
constexpr std::uint64_t kClockEvery = 256;

// Constant-initialised and never destroyed.
constinit std::atomic<Recorder* (*)() noexcept> who_records = nullptr;
constinit std::array<std::atomic<Recorder*>, kMostRecorders> recorders{};
constinit std::atomic<std::uint32_t> recorder_count = 0;

// Returns the recorder's newest index. Two threads may add it twice at first: both indexes work.
std::uint32_t place_of(Recorder* recorder) noexcept {
  std::uint32_t count = recorder_count.load(std::memory_order_acquire);
  for (std::uint32_t i = std::min(count, kMostRecorders); i-- > 0;) {
    if (recorders[i].load(std::memory_order_relaxed) == recorder) return i;
  }
  do {
    if (count >= kMostRecorders) return kMostRecorders;
  } while (!recorder_count.compare_exchange_weak(count, count + 1, std::memory_order_acq_rel));
  recorders[count].store(recorder, std::memory_order_release);
  return count;
}

Recorder* recorder_of(std::uint64_t ticket) noexcept {
  const std::uint64_t place = ticket >> kNumberBits;
  return place < kMostRecorders ? recorders[place].load(std::memory_order_acquire) : nullptr;
}

std::uint64_t begin(const CollectiveCall& call) noexcept {
  Recorder* recorder = who_records.load(std::memory_order_acquire)();
  if (recorder == nullptr) return 0;
  const std::uint64_t place = place_of(recorder);
  if (place == kMostRecorders) return 0;
  // The dictionary returns the same id for the same name.
  DictionaryWriter& dictionary = recorder->dictionary();
  CollectiveFacts facts;
  facts.group = dictionary.group(call.group);
  facts.operation = dictionary.operation(call.operation);
  facts.bytes = call.bytes;
  facts.type = call.type;
  facts.tid = call.tid;
  const std::uint64_t number = recorder->collectives().begin(facts);
  if (number % kClockEvery == 1) recorder->refresh_clock();
  return place << kNumberBits | (number & kNumberMask);
}

void numbered(std::uint64_t ticket, std::uint64_t sequence) noexcept {
  if (Recorder* recorder = recorder_of(ticket)) {
    recorder->collectives().numbered(ticket & kNumberMask, sequence);
  }
}

void end(std::uint64_t ticket) noexcept {
  if (Recorder* recorder = recorder_of(ticket)) recorder->collectives().end(ticket & kNumberMask);
}

void issued(std::uint64_t ticket) noexcept {
  if (Recorder* recorder = recorder_of(ticket)) {
    recorder->collectives().issued(ticket & kNumberMask);
  }
}

// The mapping is shared with the parent: the child must not end the parent's collectives.
void detach_child() noexcept {
  for (auto& recorder : recorders) recorder.store(nullptr, std::memory_order_relaxed);
}

constexpr CollectiveSink kSink{CollectiveSink::kVersion, &begin, &numbered, &end, &issued};

}  // namespace

const CollectiveSink& recording_sink(Recorder* (*current)() noexcept) noexcept {
  who_records.store(current, std::memory_order_release);
  static const int registered = ::pthread_atfork(nullptr, nullptr, &detach_child);
  static_cast<void>(registered);
  return kSink;
}

}  // namespace oddrank::trace

// Counts events and adds up the time of calls, thread by thread.
#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "trace/format/format.hpp"
#include "trace/read/nesting.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::trace {
namespace {

struct Use {
  std::uint32_t code = 0;
  std::uint64_t events = 0;
  std::uint64_t calls = 0;
  std::uint64_t ticks = 0;
  std::uint64_t own = 0;
  std::uint64_t running = 0;  // open calls of this code: only the outermost one's time counts
};

// Ticks never decrease, so no difference is negative. Sums of a broken file may wrap around.
class Sums final : public CallVisitor {
 public:
  void open(std::uint64_t tsc, std::uint32_t code, std::size_t /*depth*/, Why why) override {
    Use& use = use_of(code);
    ++use.running;
    if (why == Why::kEvent) {
      ++use.events;
      ++use.calls;
    }
    open_.push_back({tsc, 0});
  }
  void close(std::uint64_t tsc, std::uint32_t code, std::size_t /*depth*/, Why why) override {
    const Open call = open_.back();
    open_.pop_back();
    const std::uint64_t end = why == Why::kEnd ? std::max(tsc, end_) : tsc;
    const std::uint64_t ticks = end - call.begin;
    Use& use = use_of(code);
    if (why == Why::kEvent || why == Why::kUnwind) ++use.events;
    if (--use.running == 0) use.ticks += ticks;
    use.own += ticks - call.callees;
    if (!open_.empty()) open_.back().callees += ticks;
  }
  void line(std::uint64_t /*tsc*/, Place place) override { ++use_of(place.code()).events; }
  void gap(std::uint64_t /*tsc*/) override {}

  // Sets the end of calls that still run in the next thread; 0: at its last event.
  void set_end(std::uint64_t tsc) { end_ = tsc; }

  std::vector<Use> uses() const {
    std::vector<Use> all;
    for (const auto& [code, use] : uses_) all.push_back(use);
    return all;
  }

 private:
  struct Open {
    std::uint64_t begin;
    std::uint64_t callees;  // ticks
  };
  Use& use_of(std::uint32_t code) {
    Use& use = uses_[code];
    use.code = code;
    return use;
  }
  std::unordered_map<std::uint32_t, Use> uses_;
  std::vector<Open> open_;
  std::uint64_t end_ = 0;
};

// Returns the top `most` by own time, then the top `most` of the rest by events.
std::vector<Use> busiest(std::vector<Use> uses, std::size_t most) {
  std::vector<Use> chosen;
  std::ranges::sort(uses, std::greater{}, &Use::own);
  const auto first = static_cast<std::ptrdiff_t>(std::min(most, uses.size()));
  chosen.assign(uses.begin(), uses.begin() + first);
  uses.erase(uses.begin(), uses.begin() + first);
  std::ranges::sort(uses, std::greater{}, &Use::events);
  if (uses.size() > most) uses.resize(most);
  chosen.insert(chosen.end(), uses.begin(), uses.end());
  return chosen;
}

CodeUse named(const Use& use, Names& names, double ticks_per_ns) {
  CodeUse made;
  made.frame = names.frame(Place::of(use.code, kNoPosition, 0));
  if (const Code* code = names.dictionary().code(use.code)) made.frame.line = code->first_line;
  made.events = use.events;
  made.calls = use.calls;
  if (ticks_per_ns > 0) {
    made.seconds = static_cast<double>(use.ticks) / ticks_per_ns / 1e9;
    made.own = static_cast<double>(use.own) / ticks_per_ns / 1e9;
  }
  return made;
}

}  // namespace

Stats read_stats(const RecordFile& file, std::size_t most) {
  Stats stats;
  stats.process = file.process();
  stats.life = liveness_of(stats.process);
  stats.counters = file.counters();
  Threads threads = read_threads(file);
  const bool is_alive = stats.life == Liveness::kAlive;
  const std::uint64_t now = read_tsc();  // end of running calls, unless a later event is read
  const Clock clock = clock_of(file);
  for (const ClockPicture& picture : file.clocks()) {
    const Time time = clock.realtime_ns(picture.tsc);
    if (time && (!stats.begin || *time < *stats.begin)) stats.begin = time;
  }
  if (is_alive) stats.end = clock.realtime_ns(now);
  Names names(file);
  stats.trouble = trouble_of(names.dictionary(), threads);
  Sums sums;
  for (Thread& thread : threads.list) {
    ++stats.threads;
    Events events = read_events(file, thread);
    stats.events += thread.events;
    if (events.list.empty()) continue;
    stats.window += events.list.size();
    stats.lines += static_cast<std::uint64_t>(std::ranges::count(
        events.list, Kind::kLine, [](const Moment& m) { return m.place.kind(); }));
    note_latest(stats.end, clock.realtime_ns(events.list.back().tsc));
    if (thread.tid == stats.process.pid) {
      stats.window_begin = clock.realtime_ns(events.list.front().tsc);
    }
    sums.set_end(is_alive && thread.state != ThreadState::kEnded ? now : 0);
    Nesting nesting(std::move(events.list), recorded_calls(thread, names.dictionary()));
    nesting.visit(sums, std::numeric_limits<std::size_t>::max());
  }
  for (const Mark& mark : read_marks(file).list)
    note_latest(stats.end, clock.realtime_ns(mark.tsc));
  stats.lowered = lowered_in(names, clock);
  for (const Use& use : busiest(sums.uses(), most)) {
    stats.codes.push_back(named(use, names, clock.ticks_per_ns()));
  }
  return stats;
}

}  // namespace oddrank::trace

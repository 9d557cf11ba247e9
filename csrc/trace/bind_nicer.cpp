// Binds the text of NicerTrace: its events' way from recording threads to the printing one.
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>

#include "os/cpython.hpp"
#include "os/error.hpp"
#include "os/proc.hpp"
#include "os/to_python.hpp"
#include "trace/hooks/tracer.hpp"
#include "trace/nicer/text.hpp"

namespace oddrank {
namespace trace {
namespace {

// 20 waits of 0.1 s without progress, not one of 2 s: in one, the process may have had no core.
constexpr std::chrono::milliseconds kWait{100};
constexpr int kPatience = 20;

// Recording and printing threads wait for each other here, without the GIL.
struct Turnstile {
  std::mutex mutex;
  std::condition_variable room;  // for recording threads
  std::condition_variable work;  // for the printing thread
  std::size_t queued = 0;
  std::uint64_t moves = 0;  // number of times that the printing thread took events
  bool wanted = false;      // the printing thread should work
};

// Never destroyed: threads may wait while the process ends.
Turnstile* turnstile = new Turnstile;

void tell_queued(std::size_t queued, bool moved) {
  const std::lock_guard lock(turnstile->mutex);
  turnstile->queued = queued;
  turnstile->moves += moved ? 1 : 0;
  turnstile->room.notify_all();
}

// Passes events from the threads that record to the thread that prints.
//
// A thread that has filled half of its ring copies the new events of all rings to the queue, inside
// that event's callback and with the GIL. The printing thread turns the events into text. If it
// can't keep up, recording threads wait for it without the GIL and without running Python: nothing
// raises in them and no signal handler runs. If it makes no progress (nothing reads its stdout, or
// it waits for a lock of theirs), they continue, and their events are dropped and counted.
//
// The GIL guards all members.
class TextQueue {
 public:
  static constexpr std::size_t kWake = 1 << 15;  // events that wake the printing thread
  static constexpr std::size_t kFull = 1 << 19;  // recording threads wait from here on
  static constexpr std::size_t kMost = 2 * kFull;

  // Starts to collect events. Throws Error if a queue exists or the process does not record.
  static void begin() {
    if (instance != nullptr) throw Error("the text of a run is being written: one at a time");
    auto made = std::make_unique<TextQueue>();
    if (!made->open_feed()) throw Error("this process records nothing");
    instance = made.release();
    Recorder::listener = &listen;
  }
  // Returns null if there is none.
  static TextQueue* current() noexcept { return instance; }
  // Collects a last time and stops. Collected events can still be taken.
  static void close() noexcept {
    Recorder::listener = nullptr;
    if (instance == nullptr) return;
    instance->collect();
    instance->closed_ = true;
  }
  static void end() noexcept {
    Recorder::listener = nullptr;
    delete std::exchange(instance, nullptr);
    tell_queued(0, true);
  }
  // Call it in a forked child: drops the parent's events, which the parent prints.
  static void forget_parent() {
    // Threads of the parent may hold the old one's mutex; they don't exist here.
    turnstile = new Turnstile;
    if (instance == nullptr) return;
    instance->stuck_ = false;
    instance->events_.clear();
    instance->feed_.reset();
    instance->pid_ = ::getpid();
    instance->child_ = true;
  }

  // Native id of the printing thread, whose events are not shown; 0: there is none.
  static void set_printer(std::uint32_t tid) noexcept { printer = tid; }
  // Waits, without the GIL, for kWake events or wake(), at most `most`.
  static void wait_for_work(std::chrono::milliseconds most) {
    Turnstile* const at = turnstile;
    const WithoutGil unlocked;
    std::unique_lock lock(at->mutex);
    at->work.wait_for(lock, most, [at] { return at->wanted; });
    at->wanted = false;
  }
  static void wake() {
    const std::lock_guard lock(turnstile->mutex);
    turnstile->wanted = true;
    turnstile->work.notify_all();
  }

  // Copies the new events of all rings to the queue.
  void collect() noexcept {
    if (closed_ || is_parents()) return;
    try {
      if (feed_ == nullptr && !open_feed()) return;
      const std::size_t before = events_.size();
      feed_->read(events_, printer);
      if (events_.size() > kMost) drop_from(before);
      tell_queued(events_.size(), false);
    } catch (const std::exception&) {
      // Out of memory: the next read counts what it missed.
    }
  }
  // Takes at most `most` of the oldest events. Wakes waiting threads.
  std::vector<FedEvent> take(std::size_t most) {
    const auto end = events_.begin() + static_cast<std::ptrdiff_t>(std::min(most, events_.size()));
    std::vector<FedEvent> oldest(events_.begin(), end);
    events_.erase(events_.begin(), end);
    if (!oldest.empty()) stuck_ = false;
    tell_queued(events_.size(), true);
    return oldest;
  }
  // The record of the events. Null in a forked child before its first events.
  const RecordFile* file() const noexcept { return feed_ ? &feed_->file() : nullptr; }

 private:
  static void listen(bool may_wait) noexcept {
    TextQueue* queue = instance;
    if (queue == nullptr || queue->is_parents()) return;
    queue->collect();
    if (queue->events_.size() < kWake || thread_id() == printer) return;
    wake();
    if (may_wait && queue->events_.size() >= kFull && !queue->stuck_) queue->wait_for_room();
  }
  // True in a forked child before forget_parent().
  bool is_parents() const noexcept { return pid_ != ::getpid(); }
  // Returns false if this process has no record: a forked child before its first event.
  bool open_feed() {
    const Recorder* recorder = Tracer::current();
    if (recorder == nullptr) return false;
    feed_ =
        std::make_unique<EventFeed>(RecordFile(recorder->memory(), Tracer::get().path()), !child_);
    return true;
  }
  // Waits while the printing thread makes progress. The queue may be deleted meanwhile.
  void wait_for_room() {
    bool has_room = false;
    {
      Turnstile* const at = turnstile;
      const WithoutGil unlocked;
      std::unique_lock lock(at->mutex);
      for (int idle = 0; !has_room && idle < kPatience; ++idle) {
        const std::uint64_t before = at->moves;
        has_room = at->room.wait_for(lock, kWait, [at] { return at->queued < kFull; });
        if (at->moves != before) idle = -1;
      }
    }
    if (!has_room && instance == this) stuck_ = true;
  }
  // Replaces the events from index `begin` on by one that counts them.
  void drop_from(std::size_t begin) {
    if (begin >= events_.size()) return;
    std::uint64_t missing = 0;
    for (std::size_t i = begin; i < events_.size(); ++i) {
      missing += std::max<std::uint64_t>(events_[i].missing, 1);
    }
    FedEvent gap{events_[begin].tsc, Place{}, 0, 0};
    events_.resize(begin);
    // Merge with the count of events dropped before.
    constexpr std::uint64_t kLargest = std::numeric_limits<std::uint32_t>::max();
    if (!events_.empty() && events_.back().missing != 0 && events_.back().tid == 0 &&
        events_.back().missing + missing <= kLargest) {
      missing += events_.back().missing;
      gap.tsc = events_.back().tsc;
      events_.pop_back();
    }
    gap.missing = static_cast<std::uint32_t>(std::min(missing, kLargest));
    events_.push_back(gap);
  }

  static inline TextQueue* instance = nullptr;
  static inline std::uint32_t printer = 0;
  int pid_ = ::getpid();
  bool child_ = false;
  bool closed_ = false;
  bool stuck_ = false;  // the printing thread made no progress while a thread waited
  std::unique_ptr<EventFeed> feed_;
  std::deque<FedEvent> events_;
};

}  // namespace
}  // namespace trace

namespace {

using trace::FedEvent;
using trace::TextQueue;
using trace::TextWriter;

// Most events per call. Small, so that waiting threads see progress even if stdout is read slowly.
constexpr std::size_t kPiece = 1 << 12;

TextWriter writer(bool says, bool counts, bool callers, std::optional<std::int64_t> start_ns,
                  std::uint32_t pid, std::string script, std::vector<std::string> roots) {
  return TextWriter({says, counts, callers, start_ns, pid, std::move(script), std::move(roots)});
}

// Returns None if there is nothing more.
py::object next_text(TextWriter& writer, const py::function& lines_of) {
  TextQueue* queue = TextQueue::current();
  if (queue == nullptr) return py::none();
  const std::vector<FedEvent> events = queue->take(kPiece);
  if (events.empty()) return py::none();
  const auto clock = trace::clock_of(*queue->file());
  // lines_of is Python: the run may end meanwhile.
  for (const std::string& wanted : writer.learn(*queue->file(), events)) {
    writer.add_source(wanted, lines_of(text(wanted)).cast<std::vector<std::string>>());
  }
  std::string made;
  {
    const WithoutGil unlocked;
    writer.write(events, clock, made);
  }
  return text(made);
}

// Translates a function or a line's count.
const auto kTupleOf = [](const auto& fields) {
  return std::apply([](const auto&... each) { return tuple_of({each...}); }, fields);
};

}  // namespace

void bind_trace_nicer(py::module_& m) {
  py::class_<TextWriter>(m, "TraceText")
      .def(py::init(&writer), "says"_a, "counts"_a, "callers"_a, "start_ns"_a, "pid"_a, "script"_a,
           "roots"_a)
      .def("next", &next_text)
      .def("lines", [](const TextWriter& self) { return list_of(self.lines(), kTupleOf); })
      .def("called", [](const TextWriter& self) { return list_of(self.called(), kTupleOf); })
      .def("callers", [](const TextWriter& self) {
        return list_of(self.callers(), [](const auto& pair) {
          return tuple_of({kTupleOf(pair.first), kTupleOf(pair.second)});
        });
      });
  m.def("trace_text_begin", &TextQueue::begin);
  m.def("trace_text_printer", &TextQueue::set_printer);
  m.def("trace_text_wait",
        [](unsigned ms) { TextQueue::wait_for_work(std::chrono::milliseconds(ms)); });
  m.def("trace_text_wake", &TextQueue::wake);
  m.def("trace_text_collect", [] {
    if (TextQueue* queue = TextQueue::current()) queue->collect();
  });
  m.def("trace_text_close", &TextQueue::close);
  m.def("trace_text_end", &TextQueue::end);
  m.def("trace_text_forked", &TextQueue::forget_parent);
}

}  // namespace oddrank

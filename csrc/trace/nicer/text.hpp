// NicerTrace's events: their way from the threads that record to the thread that prints, and their
// text and counts.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/read/dictionary.hpp"
#include "trace/read/file.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {

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
  static void begin();
  // Returns null if there is none.
  static TextQueue* current() noexcept { return instance; }
  // Collects a last time and stops. Collected events can still be taken.
  static void close() noexcept;
  static void end() noexcept;
  // Call it in a forked child: drops the parent's events, which the parent prints.
  static void forget_parent();

  // Native id of the printing thread, whose events are not shown; 0: there is none.
  static void set_printer(std::uint32_t tid) noexcept { printer = tid; }
  // Waits, without the GIL, for kWake events or wake(), at most `most`.
  static void wait_for_work(std::chrono::milliseconds most);
  static void wake();

  // Copies the new events of all rings to the queue.
  void collect() noexcept;
  // The rest of the batch, which holds the oldest events.
  std::span<const FedEvent> batch() const noexcept { return std::span(batch_).subspan(taken_); }
  // Makes all other events the batch if it is empty.
  void next_batch() noexcept;
  // Takes at most `most` events from the batch. Wakes waiting threads.
  std::vector<FedEvent> take(std::size_t most);
  // The record of the batch's events. Null in a forked child before its first events.
  const RecordFile* file() const noexcept { return feed_ ? &feed_->file() : nullptr; }

 private:
  TextQueue() = default;
  static void listen(bool may_wait) noexcept;
  bool is_parents() const noexcept;
  bool open_feed();
  std::size_t size() const noexcept { return batch().size() + events_.size(); }
  void wait_for_room();
  void drop_from(std::size_t begin);

  static inline TextQueue* instance = nullptr;
  static inline std::uint32_t printer = 0;
  int pid_ = ::getpid();
  bool child_ = false;
  bool closed_ = false;
  bool stuck_ = false;  // the printing thread made no progress while a thread waited
  std::unique_ptr<EventFeed> feed_;
  std::vector<FedEvent> batch_;  // valid from taken_ on
  std::size_t taken_ = 0;
  std::vector<FedEvent> events_;
};

struct TextOptions {
  bool says = true;  // write text; if false, only count
  bool counts = true;
  bool callers = false;
  std::optional<std::int64_t> start_ns;  // wall clock: lines begin with the time since then
  std::uint32_t pid = 0;                 // if not 0, lines begin with it
  std::string script;                    // the script in whose namespace code given as text runs
  std::vector<std::string> roots;        // folders of packages, each ending with a slash
};

// Turns the events of one run into text and counts. Calls are " module:line function", lines
// "h:mm:ss file:  line: source".
class TextWriter {
 public:
  using LineCount = std::tuple<std::string_view, std::uint32_t, std::uint64_t>;  // file, line
  using Function = std::pair<std::string_view, std::string_view>;                // file, name

  explicit TextWriter(TextOptions options) : options_(std::move(options)) {}

  // Looks up code that is new in these events. Returns the files whose source is needed.
  std::vector<std::string> learn(const RecordFile& file, std::span<const FedEvent> events);
  // Sets the source lines of a file, with or without line ends.
  void add_source(const std::string& file, std::span<const std::string> lines);
  // Appends the text of these events.
  void write(std::span<const FedEvent> events, const Clock& clock, std::string& out);

  // The results are of this object's strings.
  std::vector<LineCount> lines() const;
  std::vector<Function> called() const;
  // (caller, called).
  std::vector<std::pair<Function, Function>> callers() const;

 private:
  struct Source {
    std::string file;
    std::string base;                   // the name without folders
    std::vector<std::string> lines;     // ready to be printed
    std::vector<std::uint64_t> counts;  // by line
  };
  struct CodeText {
    Source* source = nullptr;
    std::string call;  // ready to be printed
    std::string name;
    std::unique_ptr<LineTable> table;
    bool called = false;
  };
  void add_code(const Code& code, std::uint32_t python, std::vector<std::string>& wanted);
  std::string module_of(const Code& code) const;
  void write_line(const CodeText& code, const FedEvent& event, std::string& out);
  void note_call(std::uint32_t tid, std::uint32_t code);
  const std::string& time_of(const FedEvent& event, const Clock& clock);

  TextOptions options_;
  std::vector<CodeText> codes_;  // by id; `source` is null until seen
  std::unordered_map<std::string, std::unique_ptr<Source>> sources_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> stacks_;  // of ids, by tid
  std::set<std::pair<std::uint32_t, std::uint32_t>> callers_;
  std::int64_t second_ = -1;  // the second shown in time_
  std::string time_;
};

}  // namespace oddrank::trace

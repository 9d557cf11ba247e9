// Streams one record: who it is, its rows, then the calls of each thread.
#include "trace/read/export.hpp"

#include <time.h>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "trace/read/export_rows.hpp"
#include "trace/read/json_text.hpp"
#include "trace/read/life.hpp"

namespace oddrank::trace {
namespace {

// What Perfetto shows of a stack; deeper calls are left out.
constexpr std::size_t kDeepest = 512;
// Between two looks at how long the chunk has become.
constexpr std::size_t kEventsAtOnce = 1024;

constexpr std::int64_t kThreadOrder = 1;  // behind the main thread and the rows above it

std::int64_t now_ns() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::string_view base_name(std::string_view file) noexcept {
  return file.substr(file.rfind('/') + 1);  // without one: from 0
}

}  // namespace

// Calls as events of begin and end.
class Export::Calls final : public CallVisitor {
 public:
  Calls(ExportText& out, Names& names, bool lines) : out_(out), names_(names), lines_(lines) {}

  // The calls that follow are those of another thread.
  void set_thread(const Thread& thread) noexcept {
    tid_ = thread.tid;
    ended_ = thread.state == ThreadState::kEnded;
  }

  void open(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) override {
    if (depth >= kDeepest) return;
    out_.begin_event('B', tid_, out_.time(tsc));
    out_.text += text_of(code).call;
    if (why == Why::kCut) out_.text += ",\"cut\":\"began before what is left of the record\"";
    out_.text += "}}";
  }

  void close(std::uint64_t tsc, std::uint32_t /*code*/, std::size_t depth, Why why) override {
    if (depth >= kDeepest) return;
    const bool runs = why == Why::kEnd && !ended_;
    out_.begin_event('E', tid_, runs ? std::max(out_.end(), out_.time(tsc)) : out_.time(tsc));
    if (runs) out_.text += ",\"args\":{\"open\":\"to the end of the record\"}";
    if (why == Why::kUnwind) out_.text += ",\"args\":{\"left by\":\"an exception\"}";
    if (why == Why::kGap) out_.text += ",\"args\":{\"cut\":\"events are missing from here on\"}";
    out_.text += '}';
  }

  void line(std::uint64_t tsc, Place place) override {
    if (!lines_) return;
    const Code* code = names_.dictionary().code(place.code());
    const auto line = code == nullptr ? std::nullopt : names_.line(*code, place);
    out_.begin_event('i', tid_, out_.time(tsc));
    out_.text += text_of(place.code()).line;
    if (line) {
      append_number(out_.text, *line);
    } else {
      out_.text += '?';
    }
    out_.text += "\"}";
  }

  void gap(std::uint64_t tsc) override {
    out_.instant(tid_, out_.time(tsc), "events were not recorded before this");
  }

 private:
  // Of one code object, escaped: what follows the time of its calls and of its lines.
  struct Text {
    std::string call;
    std::string line;
  };

  const Text& text_of(std::uint32_t id) {
    const auto [found, is_new] = texts_.try_emplace(id);
    Text& text = found->second;
    if (!is_new) return text;
    const Frame frame = names_.frame(Place::of(id, kNoPosition, 0));
    const Code* code = names_.dictionary().code(id);
    text.call = ",\"cat\":\"call\",\"name\":\"";
    append_escaped(text.call, frame.function, kLongestText);
    text.call += "\",\"args\":{\"at\":\"";
    append_escaped(text.call, frame.file, kLongestText);
    text.call += ':';
    append_number(text.call, code == nullptr ? 0 : code->first_line);
    text.call += '"';
    text.line = ",\"s\":\"t\",\"cat\":\"line\",\"name\":\"";
    append_escaped(text.line, base_name(frame.file), kLongestText);
    text.line += ':';
    return text;
  }

  ExportText& out_;
  Names& names_;
  bool lines_;
  std::uint32_t tid_ = 0;
  bool ended_ = false;
  std::unordered_map<std::uint32_t, Text> texts_;
};

Export::Export(const std::string& path) : Export(RecordFile(path)) {}
Export::Export(RecordFile file) : file_(std::move(file)), clock_(clock_of(file_)) {}
Export::~Export() = default;

ExportFacts Export::facts() const {
  ExportFacts facts;
  facts.process = file_.process();
  facts.ticks_per_ns = clock_.ticks_per_ns();
  std::uint64_t earliest = std::numeric_limits<std::uint64_t>::max();
  for (const ClockPicture& picture : file_.clocks()) {
    earliest = std::min(earliest, picture.realtime_ns);
  }
  if (earliest <= std::numeric_limits<std::int64_t>::max()) {
    facts.begin = static_cast<std::int64_t>(earliest);
  }
  return facts;
}

bool Export::start(const ExportOptions& options) {
  options_ = options;
  if (clock_.knows() == Clock::Knows::kNothing) return false;
  if (clock_.knows() == Clock::Knows::kOneMoment && options.ticks_per_ns <= 0) return false;
  out_.emplace(options, clock_);
  Threads threads = read_threads(file_);
  threads_ = std::move(threads.list);
  const Records<Mark> marks = read_marks(file_);
  const std::vector<Collective> collectives = read_joined_collectives(file_);
  names_.emplace(file_);  // later than what it names, so that every id is there
  trouble_ = names_->dictionary().broken();
  if (threads.broken > 0) {
    trouble_ += (trouble_.empty() ? "" : "; ") + std::to_string(threads.broken) +
                " thread slots are broken";
  }
  find_end(marks.list, collectives);
  describe();
  write_marks(*out_, marks.list, threads_);
  write_collectives(*out_, collectives, names_->dictionary());
  calls_ = std::make_unique<Calls>(*out_, *names_, options.lines);
  return true;
}

void Export::find_end(const std::vector<Mark>& marks, const std::vector<Collective>& collectives) {
  if (life_of(file_.process()) == Life::kAlive) {
    out_->set_end(now_ns());
    return;
  }
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  const auto note = [&](std::uint64_t tsc) { end = std::max(end, out_->time(tsc)); };
  for (const Thread& thread : threads_) {
    const Events last = read_events(file_, thread.slot, 1);
    if (!last.list.empty()) note(last.list.back().tsc);
  }
  for (const Mark& mark : marks) note(mark.tsc);
  for (const Collective& each : collectives) {
    if (each.begin) note(*each.begin);
    if (each.end) note(*each.end);
  }
  if (end != std::numeric_limits<std::int64_t>::min()) out_->set_end(end + options_.origin_ns);
}

void Export::describe() {
  const Process& process = file_.process();
  const std::uint64_t main = process.pid;
  std::string name = "rank " + std::to_string(process.rank) + " (" + process.host + ")";
  if (process.is_child) name += " child " + std::to_string(process.pid);
  out_->describe("process_name", main, name);
  out_->describe("process_labels", main, process.arguments);
  // Children come right behind their rank.
  out_->describe("process_sort_index", main,
                 std::int64_t{process.rank} * 2 + (process.is_child ? 1 : 0));
  for (const Thread& thread : threads_) {
    out_->describe("thread_name", thread.tid, thread.name.empty() ? "thread" : thread.name);
    out_->describe("thread_sort_index", thread.tid, thread.tid == main ? 0 : kThreadOrder);
  }
}

// The calls of the next thread that has any.
bool Export::next_thread() {
  while (thread_ < threads_.size()) {
    const Thread& thread = threads_[thread_++];
    Events events = read_events(file_, thread.slot, std::numeric_limits<std::uint64_t>::max());
    if (events.generation != thread.generation) continue;
    // Its stack is of the moment when it was listed: what has been recorded since is left out.
    if (events.first >= thread.events) continue;
    const std::uint64_t count = thread.events - events.first;
    if (count < events.list.size()) events.list.resize(count);
    if (events.list.empty()) continue;
    calls_->set_thread(thread);
    nesting_ = std::make_unique<Nesting>(
        std::move(events.list), thread.torn ? std::vector<std::uint32_t>{}
                                            : recorded_calls(thread.stack, names_->dictionary()));
    return true;
  }
  return false;
}

std::string Export::chunk() {
  while (out_ && out_->text.size() < kChunk && (nesting_ != nullptr || next_thread())) {
    if (!nesting_->visit(*calls_, kEventsAtOnce)) nesting_.reset();
  }
  if (!out_) return {};
  std::string text = std::move(out_->text);
  out_->text.clear();
  out_->text.reserve(kChunk + kChunk / 8);
  return text;
}

}  // namespace oddrank::trace

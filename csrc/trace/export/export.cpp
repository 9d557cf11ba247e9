// Streams one record: its description, its rows, then the calls of each thread. Behind them, the
// texts of events: escapes and formats without locale.
#include "trace/export/export.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "os/clock.hpp"
#include "os/encoding.hpp"
#include "trace/read/records.hpp"

namespace oddrank::trace {
namespace {

// Events between two checks of the chunk's length.
constexpr std::size_t kEventsAtOnce = 1024;

// Order of the rows: above the threads in chrome://tracing. (Perfetto puts the main thread first,
// and the process with the most slices.)
constexpr std::int64_t kStepOrder = -3;
constexpr std::int64_t kSectionOrder = -2;
constexpr std::int64_t kCollectiveOrder = -1;
constexpr std::int64_t kThreadOrder = 1;  // the main thread has 0

constexpr std::size_t kDeepest = 512;  // deepest stack that Perfetto shows

constexpr std::string_view kOpen = "\"open\":\"to the end of the record\"";
constexpr std::string_view kCut = "\"cut\":\"its begin is no more in the record\"";

std::string_view base_name(std::string_view file) noexcept {
  return file.substr(file.rfind('/') + 1);  // without one: from 0
}

// Longest text from a record, in bytes: it may be repeated with every event.
constexpr std::size_t kLongestText = 500;

// A rank is a process of the trace; a row is a thread or one of these ids, which no thread has.
constexpr std::uint64_t kStepRow = 10'000'000;
constexpr std::uint64_t kSectionRow = 20'000'000;
constexpr std::uint64_t kCollectiveRow = 30'000'000;

}  // namespace

void append_escaped(std::string& to, std::string_view bytes, std::size_t most) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::uint32_t code = 0;
    std::size_t length = utf8_character(bytes.substr(at, 4), code);
    if (is_surrogate(code)) length = 0;  // RFC 3629
    if (at + length > most || at >= most) {
      to += "...";
      return;
    }
    const auto first = static_cast<unsigned char>(bytes[at]);
    if (length == 0) {
      to += "\xEF\xBF\xBD";  // U+FFFD
    } else if (first < 0x20) {
      to += "\\u00";
      append_hex(first, to);
    } else {
      if (first == '"' || first == '\\') to += '\\';
      to += bytes.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
}

void append_microseconds(std::string& to, std::int64_t nanoseconds) {
  if (nanoseconds < 0) to += '-';
  // Unsigned: the smallest int64 has no positive counterpart.
  const auto value = nanoseconds < 0 ? 0 - static_cast<std::uint64_t>(nanoseconds)
                                     : static_cast<std::uint64_t>(nanoseconds);
  to += std::to_string(value / 1000);
  to += '.';
  for (const std::uint64_t unit : {100, 10, 1}) {
    to += static_cast<char>('0' + value / unit % 10);
  }
}

// The text of events. Each event begins with ",\n": the writer of the file drops the first comma.
class ExportText {
 public:
  ExportText(const ExportOptions& options, const Clock& clock)
      : process_id_(options.process_id), origin_ns_(options.origin_ns), clock_(clock) {}

  // Returns nanoseconds since the origin, at most end(). An unknown time becomes the last one.
  std::int64_t time(std::uint64_t tsc) noexcept {
    const auto found = clock_.realtime_ns(tsc);
    std::int64_t since = 0;
    if (found && !__builtin_sub_overflow(*found, origin_ns_, &since)) {
      last_ = std::min(since, end_);
    }
    return last_;
  }
  void set_end(std::int64_t realtime_ns) noexcept { end_ = realtime_ns - origin_ns_; }
  std::int64_t end() const noexcept { return end_; }

  // {"ph":"B","pid":1,"tid":2,"ts":3.000   The caller appends the rest and "}".
  void begin_event(char phase, std::uint64_t row, std::int64_t ns) {
    if (row != prefix_row_) {
      prefix_row_ = row;
      prefix_ = "\",\"pid\":" + std::to_string(process_id_) + ",\"tid\":" + std::to_string(row) +
                ",\"ts\":";
    }
    text += ",\n{\"ph\":\"";
    text += phase;
    text += prefix_;
    append_microseconds(text, ns);
    ++events;
  }
  void instant(std::uint64_t row, std::int64_t ns, std::string_view name) {
    begin_event('i', row, ns);
    text += ",\"s\":\"t\"";
    this->name(name);
    text += '}';
  }
  // Writes a row's or process's name, or the number by which rows are sorted.
  void describe(std::string_view what, std::uint64_t row, std::string_view name) {
    metadata(what, row, what == "process_labels" ? "labels" : "name");
    text += '"';
    append_escaped(text, name, kLongestText);
    text += "\"}}";
  }
  void describe(std::string_view what, std::uint64_t row, std::int64_t number) {
    metadata(what, row, "sort_index");
    text += std::to_string(number) + "}}";
  }
  // ,"name":"..."
  void name(std::string_view bytes) {
    text += ",\"name\":\"";
    append_escaped(text, bytes, kLongestText);
    text += '"';
  }

  std::string text;
  std::uint64_t events = 0;
  std::uint64_t left_out = 0;  // number of calls and slices left out (too deep, too many rows)

 private:
  void metadata(std::string_view what, std::uint64_t row, std::string_view key) {
    text += ",\n{\"ph\":\"M\",\"pid\":" + std::to_string(process_id_);
    text += ",\"tid\":" + std::to_string(row) + ",\"name\":\"";
    text.append(what).append("\",\"args\":{\"").append(key).append("\":");
  }

  std::int64_t process_id_;
  std::int64_t origin_ns_;
  Clock clock_;
  std::int64_t end_ = INT64_MAX;
  std::int64_t last_ = 0;
  // The text between phase and time, the same for all events of a row.
  std::string prefix_;
  std::uint64_t prefix_row_ = ~std::uint64_t{0};
};

namespace {

// A slice of a step, section or collective.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::string name;  // the writer's bytes
  std::string args;  // members of a JSON object
};

// Whether a slice may lie inside another one in the same row.
enum class Within : std::uint8_t { kSameRow, kRowOfItsOwn };

// Rows for overlapping slices. Bounds the work on a hostile file.
constexpr std::size_t kMostRows = 32;

// The ends of a row's open slices, outermost first.
using Row = std::vector<std::int64_t>;

// Adds a slice; slices come in the order of their begins. Returns false if it overlaps an open
// one in a way that `within` does not allow.
bool take(Row& row, const Slice& slice, Within within) {
  while (!row.empty() && row.back() <= slice.begin) row.pop_back();
  const bool is_inside = within == Within::kSameRow && !row.empty();
  if (!row.empty() && !(is_inside && slice.end <= row.back())) return false;
  row.push_back(slice.end);
  return true;
}

// Writes slices that may overlap into as many rows as needed, up to 32; the first is called
// `title`. Returns the first free row.
std::uint64_t write_slices(ExportText& out, std::uint64_t row, std::string_view title,
                           std::int64_t order, Within within, std::vector<Slice> slices) {
  std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<Row> rows;
  for (const Slice& slice : slices) {
    auto at = std::ranges::find_if(rows, [&](Row& each) { return take(each, slice, within); });
    if (at == rows.end()) {
      if (rows.size() == kMostRows) {
        ++out.left_out;
        continue;
      }
      std::string name(title);
      if (!rows.empty()) name += " (" + std::to_string(rows.size() + 1) + ")";
      out.describe("thread_name", row + rows.size(), name);
      out.describe("thread_sort_index", row + rows.size(), order);
      at = rows.insert(rows.end(), Row{slice.end});
    }
    out.begin_event('X', row + static_cast<std::uint64_t>(at - rows.begin()), slice.begin);
    out.text += ",\"dur\":";
    append_microseconds(out.text, std::max(slice.end, slice.begin) - slice.begin);
    out.name(slice.name);
    out.text += ",\"args\":{" + slice.args + "}}";
  }
  return row + rows.size();
}

std::string step_name(std::uint64_t step) { return "step " + std::to_string(step); }

void write_steps(ExportText& out, const std::vector<Mark>& marks) {
  std::vector<Slice> steps;
  for (const Mark& mark : marks) {
    if (mark.kind != MarkKind::kStep) continue;
    const std::int64_t now = out.time(mark.tsc);
    if (!steps.empty()) steps.back().end = std::max(now, steps.back().begin);
    steps.push_back({now, out.end(), step_name(mark.value), ""});
  }
  if (!steps.empty()) steps.back().args = kOpen;
  write_slices(out, kStepRow, "steps", kStepOrder, Within::kRowOfItsOwn, std::move(steps));
}

std::string thread_title(std::uint32_t tid,
                         const std::unordered_map<std::uint32_t, std::string_view>& names) {
  const auto found = names.find(tid);
  if (found != names.end() && !found->second.empty()) return std::string(found->second);
  return "thread " + std::to_string(tid);
}

// Writes sections by the thread that entered them.
void write_sections(ExportText& out, const std::vector<Mark>& marks,
                    const std::vector<Thread>& threads) {
  std::map<std::uint32_t, std::vector<Slice>> rows;
  std::map<std::uint64_t, std::pair<std::uint32_t, std::size_t>> open;  // number: row, index
  // The oldest mark. Not a begin: it may be repeated, with a time long before the other marks.
  const auto oldest = std::ranges::find_if(
      marks, [](const Mark& mark) { return mark.kind != MarkKind::kSectionBegin; });
  const std::int64_t first = oldest == marks.end() ? 0 : out.time(oldest->tsc);
  for (const Mark& mark : marks) {
    const std::int64_t now = out.time(mark.tsc);
    if (mark.kind == MarkKind::kSectionBegin) {
      auto& row = rows[mark.tid];
      open[mark.value] = {mark.tid, row.size()};
      row.push_back({now, out.end(), mark.text, std::string(kOpen)});
    } else if (mark.kind == MarkKind::kSectionEnd) {
      if (const auto begun = open.find(mark.value); begun != open.end()) {
        Slice& slice = rows[begun->second.first][begun->second.second];
        slice.end = now;
        slice.args.clear();
        open.erase(begun);
      } else {
        rows[mark.tid].push_back({first, now, mark.text, std::string(kCut)});
      }
    }
  }
  std::unordered_map<std::uint32_t, std::string_view> names;
  for (const Thread& thread : threads) names.try_emplace(thread.tid, thread.name);
  std::uint64_t free = kSectionRow;
  for (auto& [tid, slices] : rows) {
    const std::string title = "sections of " + thread_title(tid, names);
    free = write_slices(out, free, title, kSectionOrder, Within::kSameRow, std::move(slices));
  }
}

std::string args_of(const Collective& collective) {
  std::string args = "\"state\":\"" + std::string(name_of(collective.state)) + '"';
  args += ",\"number\":" + std::to_string(collective.number);
  if (const auto sequence = collective.known_sequence()) {
    args += ",\"sequence\":" + std::to_string(*sequence);
  }
  args += ",\"bytes\":" + std::to_string(collective.bytes);
  if (collective.state == Collective::State::kOpen) args += "," + std::string(kOpen);
  if (!collective.begin) args += "," + std::string(kCut);
  return args;
}

std::string name_of(const Collective& collective, const Dictionary& names,
                    const ExportOptions& options) {
  std::string name(names.operation(collective.operation));
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (const auto users = options.operations.find(name); users != options.operations.end()) {
    name = users->second;
  }
  name.erase(0, std::min(name.find_first_not_of('_'), name.size()));
  if (name.empty()) name = "collective";
  if (const auto sequence = collective.known_sequence()) name += " " + std::to_string(*sequence);
  if (collective.state == Collective::State::kOpen) name += " (open)";
  return name;
}

// Writes steps as an instant and a slice up to the next step, sections as a row per thread, and
// other marks as instants on the row of their thread.
void write_marks(ExportText& out, const std::vector<Mark>& marks,
                 const std::vector<Thread>& threads) {
  std::vector<Mark> sorted = marks;  // claims of two threads may be out of order
  std::ranges::stable_sort(sorted, {}, &Mark::tsc);
  write_steps(out, sorted);
  write_sections(out, sorted, threads);
  for (const Mark& mark : sorted) {
    if (mark.kind == MarkKind::kStep) {
      out.instant(mark.tid, out.time(mark.tsc), step_name(mark.value));
    } else if (mark.kind == MarkKind::kMark) {
      const std::string_view name = mark.text.empty() ? "mark" : std::string_view(mark.text);
      out.instant(mark.tid, out.time(mark.tsc), name);
    }
  }
}

// As all commands name a group: default_pg, group 7. torch's description is "undefined" if it has
// none.
std::string title_of(std::uint32_t group, const Dictionary& names) {
  const ProcessGroup* found = names.group(group);
  const bool has_text = found != nullptr && !found->text.empty() && found->text != "undefined";
  std::string title(has_text ? found->text : names.group_name(group));
  if (title.empty()) title = "?";
  return title.find_first_not_of("0123456789?") == title.npos ? "group " + title : title;
}

// Writes a row for each group, and more rows if its collectives overlap. Open collectives extend
// to the end of the record. Issued ones, whose ends are not recorded, have no length.
void write_collectives(ExportText& out, const std::vector<Collective>& collectives,
                       const Dictionary& names, const ExportOptions& options) {
  std::int64_t first = out.end();
  for (const Collective& each : collectives) {
    if (each.begin) first = std::min(first, out.time(*each.begin));
    if (each.end) first = std::min(first, out.time(*each.end));
  }
  std::map<std::uint32_t, std::vector<Slice>> rows;
  for (const Collective& each : collectives) {
    const std::int64_t begin = each.begin ? out.time(*each.begin) : first;
    const bool has_no_end = each.state == Collective::State::kIssued;
    const std::int64_t end = each.end ? out.time(*each.end) : has_no_end ? begin : out.end();
    rows[each.group].push_back({begin, end, name_of(each, names, options), args_of(each)});
  }
  std::uint64_t free = kCollectiveRow;
  for (auto& [group, slices] : rows) {
    const std::string title = "collectives of " + title_of(group, names);
    // Collectives do not nest: overlapping ones get separate rows.
    free =
        write_slices(out, free, title, kCollectiveOrder, Within::kRowOfItsOwn, std::move(slices));
  }
}

}  // namespace

// Writes the calls of one record, thread by thread. Escapes the text of each code object once.
class ExportCalls final : public CallVisitor {
 public:
  ExportCalls(ExportText& out, Names& names, bool lines)
      : out_(out), names_(names), lines_(lines) {}

  // Sets the thread of the next calls.
  void set_thread(const Thread& thread) noexcept {
    tid_ = thread.tid;
    ended_ = thread.state == ThreadState::kEnded;
  }
  void open(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) override {
    if (depth >= kDeepest) {
      ++out_.left_out;
      return;
    }
    out_.begin_event('B', tid_, out_.time(tsc));
    out_.text += text_of(code).call;
    if (why == Why::kCut) out_.text += ",\"cut\":\"began before what is left of the record\"";
    out_.text += "}}";
  }
  void close(std::uint64_t tsc, std::uint32_t /*code*/, std::size_t depth, Why why) override {
    if (depth >= kDeepest) return;
    const bool runs = why == Why::kEnd && !ended_;
    out_.begin_event('E', tid_, runs ? std::max(out_.end(), out_.time(tsc)) : out_.time(tsc));
    if (runs) out_.text += ",\"args\":{" + std::string(kOpen) + "}";
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
    out_.text += line ? std::to_string(*line) : "?";
    out_.text += "\"}";
  }
  void gap(std::uint64_t tsc) override {
    out_.instant(tid_, out_.time(tsc), "events may be missing before this");
  }
  void level(std::uint64_t tsc, Place place) override {
    const Frame frame = names_.frame(place.code());
    std::string name = frame.function.substr(0, kLongestText) + ": recorded by ";
    out_.instant(tid_, out_.time(tsc), name + kLevelNames[place.position() & 3] + " from here on");
  }

 private:
  // The text of one code object after the time: for its calls and for its lines.
  struct Text {
    std::string call;
    std::string line;
  };
  const Text& text_of(std::uint32_t id) {
    const auto [found, is_new] = texts_.try_emplace(id);
    Text& text = found->second;
    if (!is_new) return text;
    const Frame frame = names_.frame(id);
    text.call = ",\"cat\":\"call\",\"name\":\"";
    append_escaped(text.call, frame.function, kLongestText);
    text.call += "\",\"args\":{\"at\":\"";
    append_escaped(text.call, frame.file, kLongestText);
    text.call += frame.line ? ":" + std::to_string(*frame.line) + '"' : "?\"";
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
Export::~Export() = default;
Export::Export(Export&&) noexcept = default;
Export::Export(RecordFile file) : file_(std::move(file)), clock_(clock_of(file_)) {}

std::uint64_t Export::events() const noexcept { return out_ ? out_->events : 0; }

bool Export::start(const ExportOptions& options) {
  options_ = options;
  Clock clock(options.clocks);
  if (clock.knows() != Clock::Knows::kLine) clock = clock_;
  if (clock.knows() != Clock::Knows::kLine) return false;
  out_ = std::make_unique<ExportText>(options, clock);
  threads_ = read_threads(file_).list;
  const Records<Mark> marks = read_marks(file_);
  const std::vector<Collective> collectives = read_joined_collectives(file_);
  names_.emplace(file_);  // after the other reads, so that every id is there
  find_end(marks.list, collectives);
  describe();
  write_marks(*out_, marks.list, threads_);
  write_collectives(*out_, collectives, names_->dictionary(), options);
  calls_ = std::make_unique<ExportCalls>(*out_, *names_, options.lines);
  return true;
}

std::string Export::trouble() const {
  if (!out_ || out_->left_out == 0) return {};
  return std::to_string(out_->left_out) +
         " calls or slices are left out: too many below or beside each other";
}

void Export::find_end(const std::vector<Mark>& marks, const std::vector<Collective>& collectives) {
  if (liveness_of(file_.process()) == Liveness::kAlive) {
    out_->set_end(clock_ns(CLOCK_REALTIME));
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
  if (process.is_child != 0) name += " child " + std::to_string(process.pid);
  out_->describe("process_name", main, name);
  out_->describe("process_labels", main, process.arguments);
  // Children come directly after their rank.
  out_->describe("process_sort_index", main, std::int64_t{process.rank} * 2 + process.is_child);
  for (const Thread& thread : threads_) {
    out_->describe("thread_name", thread.tid, thread.name.empty() ? "thread" : thread.name);
    out_->describe("thread_sort_index", thread.tid, thread.tid == main ? 0 : kThreadOrder);
  }
}

// Starts the next thread that has calls.
bool Export::next_thread() {
  while (thread_ < threads_.size()) {
    Thread& thread = threads_[thread_++];
    Events events = read_events(file_, thread);
    if (events.list.empty()) continue;
    calls_->set_thread(thread);
    nesting_ = std::make_unique<Nesting>(std::move(events.list),
                                         recorded_calls(thread, names_->dictionary()));
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
  const bool more_follows = nesting_ != nullptr || thread_ < threads_.size();
  if (more_follows) out_->text.reserve(kChunk + kChunk / 8);
  return text;
}

}  // namespace oddrank::trace

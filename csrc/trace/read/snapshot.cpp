// Combines the regions of a record into a Snapshot; merges rings and marks by time into a History.
#include "trace/read/snapshot.hpp"

#include <algorithm>
#include <map>

namespace oddrank::trace {
namespace {

std::vector<ThreadNow> threads_of(const RecordFile& file, Names& names, Snapshot& snapshot) {
  const Clock& clock = snapshot.clock;
  std::vector<ThreadNow> threads;
  Threads read = read_threads(file);
  snapshot.trouble = names.dictionary().broken();
  if (read.broken > 0) {
    snapshot.trouble += (snapshot.trouble.empty() ? "" : "; ") + std::to_string(read.broken) +
                        " thread slots are broken";
  }
  for (Thread& thread : read.list) {
    ThreadNow now;
    for (const Place place : thread.stack) {
      now.stack.push_back(names.frame(place));
      if (place.kind() == Kind::kSampled) now.sampled = clock.realtime_ns(thread.sampled);
    }
    const Events events = read_last_event(file, thread.slot);
    if (!events.list.empty() && events.generation == thread.generation) {
      now.last = clock.realtime_ns(events.list.back().tsc);
      note_latest(snapshot.last_event, now.last);
    }
    now.thread = std::move(thread);
    threads.push_back(std::move(now));
  }
  return threads;
}

// Returns since when the GIL is held, if it is for at least a second. The moment of reading counts
// if the process lives; else its last clock reading, which a slim copy has from its making.
Time gil_wanted_in(const RecordFile& file, const Snapshot& snapshot) {
  constexpr std::int64_t kLongNs = 1'000'000'000;
  Time last = snapshot.last_event;
  for (const ClockPicture& picture :
       snapshot.life == Liveness::kAlive ? snapshot.clocks : file.clocks()) {
    note_latest(last, snapshot.clock.realtime_ns(picture.tsc));
  }
  const Time since = snapshot.gil_asked;
  return since && last && *last - *since >= kLongNs ? since : std::nullopt;
}

void read_collectives_of(const RecordFile& file, Snapshot& snapshot) {
  for (const Collective& one : read_joined_collectives(file)) {
    note_latest(snapshot.last_event, snapshot.clock.realtime_ns(one.begin));
    note_latest(snapshot.last_event, snapshot.clock.realtime_ns(one.end));
    if (one.state == Collective::State::kOpen) {
      snapshot.open.push_back(one);
    } else {
      snapshot.last = one;
    }
  }
}

void read_marks_of(const RecordFile& file, Snapshot& snapshot) {
  std::map<std::uint64_t, Mark> open;
  for (const Mark& mark : read_marks(file).list) {
    const Time time = snapshot.clock.realtime_ns(mark.tsc);
    note_latest(snapshot.last_event, time);
    if (mark.kind == MarkKind::kStep && mark.value == snapshot.header.step()) snapshot.step = time;
    if (mark.kind == MarkKind::kSectionBegin) open[mark.value] = mark;
    if (mark.kind == MarkKind::kSectionEnd) open.erase(mark.value);
  }
  for (auto& [number, section] : open) snapshot.sections.push_back(std::move(section));
}

// An event whose names are not resolved yet.
struct Raw {
  std::uint64_t tsc;
  std::uint32_t tid;
  Place place;
  const Mark* mark;  // null for an event of a ring
};

std::string said_by(const Mark& mark) {
  switch (mark.kind) {
    case MarkKind::kStep:
      return "step " + std::to_string(mark.value);
    case MarkKind::kSectionBegin:
      return "begin " + mark.text;
    case MarkKind::kSectionEnd:
      return "end " + mark.text;
    case MarkKind::kMark:
      break;
  }
  return mark.text;
}

void keep_last(std::vector<Raw>& raw, std::size_t last) {
  std::ranges::stable_sort(raw, {}, &Raw::tsc);
  if (raw.size() > last) raw.erase(raw.begin(), raw.end() - static_cast<std::ptrdiff_t>(last));
}

}  // namespace

Frame Names::frame(Place place) {
  Frame frame;
  const Code* code = dictionary_.code(place.code());
  const std::size_t size = code == nullptr ? 0 : code->qualified_name.size() + code->file.size();
  if (code == nullptr || size > room_) {
    frame.function = "code " + std::to_string(place.code());
    return frame;
  }
  room_ -= size;
  frame.function = code->qualified_name;
  frame.file = code->file;
  frame.line = line(*code, place);
  if (!frame.line) frame.now = code->now;
  return frame;
}

Frame Names::frame(std::uint32_t id) {
  Frame frame = this->frame(Place::of(id, kNoPosition, Kind::kNone));
  if (const Code* code = dictionary_.code(id)) frame.line = code->first_line;
  return frame;
}

std::optional<std::uint32_t> Names::line(const Code& code, Place place) {
  if (place.position() == kNoPosition) return std::nullopt;
  if (!place.is_offset()) return place.position();
  if (code.linetable.empty()) return std::nullopt;
  const auto table = tables_.try_emplace(code.id, code.linetable, code.first_line).first;
  return table->second.line_at(place.position());
}

Snapshot read_snapshot(const RecordFile& file) {
  Snapshot snapshot;
  snapshot.process = file.process();
  snapshot.life = liveness_of(file.process());
  snapshot.header = file.header();
  snapshot.clocks = clock_pictures(file);
  snapshot.clock = Clock(snapshot.clocks);
  Names names(file);
  snapshot.threads = threads_of(file, names, snapshot);
  read_collectives_of(file, snapshot);
  read_marks_of(file, snapshot);
  const std::uint64_t asked = value_of(snapshot.header->gil_wanted);
  if (asked != 0) snapshot.gil_asked = snapshot.clock.realtime_ns(asked);
  snapshot.gil_wanted = gil_wanted_in(file, snapshot);
  const std::uint64_t rests = value_of(snapshot.header->sampled_since);
  if (rests != 0) snapshot.sampled_since = snapshot.clock.realtime_ns(rests);
  snapshot.groups = read_progress(file);
  snapshot.names = std::move(names).take();
  return snapshot;
}

History read_history(const RecordFile& file, std::size_t last) {
  const Records<Mark> marks = read_marks(file);
  std::vector<Raw> raw;
  for (const Mark& mark : marks.list) raw.push_back({mark.tsc, mark.tid, {}, &mark});
  keep_last(raw, last);
  for (const Thread& thread : read_threads(file).list) {
    if (thread.capacity == 0) continue;
    const Events events = read_events(file, thread.slot, last);
    if (events.generation != thread.generation) continue;
    for (const Moment& moment : events.list) {
      raw.push_back({moment.tsc, thread.tid, moment.place, nullptr});
    }
    keep_last(raw, last);
  }

  Names names(file);
  History history;
  history.clock = clock_of(file);
  history.process = file.process();
  history.trouble = names.dictionary().broken();
  for (const Raw& one : raw) {
    HistoryEvent event;
    event.tsc = one.tsc;
    event.time = history.clock.realtime_ns(one.tsc);
    event.tid = one.tid;
    if (one.mark != nullptr) {
      event.mark = said_by(*one.mark);
    } else {
      event.kind = one.place.kind();
      if (event.kind == Kind::kLevel) {
        event.mark = kLevelNames[one.place.position() & 3];
        event.frame = names.frame(Place::of(one.place.code(), kNoPosition, Kind::kNone));
      } else if (event.kind != Kind::kGap) {
        event.frame = names.frame(one.place);
      }
    }
    history.events.push_back(std::move(event));
  }
  return history;
}

}  // namespace oddrank::trace

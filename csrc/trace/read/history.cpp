// Merges rings and marks by time, then resolves the names of those kept.
#include "trace/read/history.hpp"

#include <algorithm>

namespace oddrank::trace {
namespace {

// An event whose names are not resolved yet.
struct Raw {
  std::uint64_t tsc;
  std::uint32_t tid;
  Place place;
  const Mark* mark;  // nullptr: an event of a ring
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

History read_history(const std::string& path, std::size_t last) {
  const RecordFile file(path);
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

  const Clock clock = clock_of(file);
  Names names(file);
  History history;
  history.process = file.process();
  history.trouble = names.dictionary().broken();
  for (const Raw& one : raw) {
    HistoryEvent event;
    event.tsc = one.tsc;
    event.time = clock.realtime_ns(one.tsc);
    event.tid = one.tid;
    if (one.mark != nullptr) {
      event.mark = said_by(*one.mark);
    } else {
      event.kind = one.place.kind();
      if (event.kind != Kind::kGap) event.frame = names.frame(one.place);
      const Code* code = names.dictionary().code(one.place.code());
      event.source_hash = code == nullptr ? 0 : code->source_hash;
    }
    history.events.push_back(std::move(event));
  }
  return history;
}

}  // namespace oddrank::trace

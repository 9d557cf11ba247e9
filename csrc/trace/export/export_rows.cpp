// Joins begins with ends and gives each slice its row.
#include "trace/export/export_rows.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

namespace oddrank::trace {
namespace {

// Order of the rows: above the threads in chrome://tracing. (Perfetto puts the main thread first,
// and the process with the most slices.)
constexpr std::int64_t kStepOrder = -3;
constexpr std::int64_t kSectionOrder = -2;
constexpr std::int64_t kCollectiveOrder = -1;

constexpr std::string_view kOpen = "\"open\":\"to the end of the record\"";
constexpr std::string_view kCut = "\"cut\":\"its begin is no more in the record\"";

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
  const std::int64_t first = marks.empty() ? 0 : out.time(marks.front().tsc);
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
  if (collective.sequence) args += ",\"sequence\":" + std::to_string(*collective.sequence);
  args += ",\"bytes\":" + std::to_string(collective.bytes);
  if (collective.state == Collective::State::kOpen) args += "," + std::string(kOpen);
  if (!collective.begin) args += "," + std::string(kCut);
  return args;
}

std::string name_of(const Collective& collective, const Dictionary& names) {
  std::string name(names.operation(collective.operation));
  while (!name.empty() && name.back() == '_') name.pop_back();
  name.erase(0, std::min(name.find_first_not_of('_'), name.size()));
  if (name.empty()) name = "collective";
  if (collective.sequence) name += " #" + std::to_string(*collective.sequence);
  if (collective.state == Collective::State::kOpen) name += " (open)";
  return name;
}

}  // namespace

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

void write_collectives(ExportText& out, const std::vector<Collective>& collectives,
                       const Dictionary& names) {
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
    rows[each.group].push_back({begin, end, name_of(each, names), args_of(each)});
  }
  std::uint64_t free = kCollectiveRow;
  for (auto& [group, slices] : rows) {
    std::string title = "collectives of group ";
    title += names.group(group).empty() ? "?" : names.group(group);
    // Collectives do not nest: overlapping ones get separate rows.
    free =
        write_slices(out, free, title, kCollectiveOrder, Within::kRowOfItsOwn, std::move(slices));
  }
}

}  // namespace oddrank::trace

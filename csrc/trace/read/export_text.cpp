// Puts events together from texts and numbers.
#include "trace/read/export_text.hpp"

#include <algorithm>

#include "trace/read/json_text.hpp"

namespace oddrank::trace {
namespace {

// More overlapping slices than anybody looks at; bounds the work on a hostile file.
constexpr std::size_t kMostRows = 32;

}  // namespace

std::int64_t ExportText::time(std::uint64_t tsc) noexcept {
  auto found = clock_.realtime_ns(tsc);
  if (!found && options_.ticks_per_ns > 0) found = clock_.realtime_ns(tsc, options_.ticks_per_ns);
  std::int64_t since = 0;
  if (found && !__builtin_sub_overflow(*found, options_.origin_ns, &since)) {
    last_ = std::min(since, end_);
  }
  return last_;
}

void ExportText::begin_event(char phase, std::uint64_t row, std::int64_t ns) {
  if (row != prefix_row_) {
    prefix_row_ = row;
    prefix_ = "\",\"pid\":";
    append_number(prefix_, options_.process_id);
    prefix_ += ",\"tid\":";
    append_number(prefix_, static_cast<std::int64_t>(row));
    prefix_ += ",\"ts\":";
  }
  text += ",\n{\"ph\":\"";
  text += phase;
  text += prefix_;
  append_microseconds(text, ns);
  ++events;
}

void ExportText::instant(std::uint64_t row, std::int64_t ns, std::string_view name) {
  begin_event('i', row, ns);
  text += ",\"s\":\"t\"";
  this->name(name);
  text += '}';
}

void ExportText::name(std::string_view bytes) {
  text += ",\"name\":\"";
  append_escaped(text, bytes, kLongestText);
  text += '"';
}

void ExportText::metadata(std::string_view what, std::uint64_t row) {
  text += ",\n{\"ph\":\"M\",\"pid\":";
  append_number(text, options_.process_id);
  text += ",\"tid\":";
  append_number(text, static_cast<std::int64_t>(row));
  text += ",\"name\":\"";
  text += what;
  text += "\",\"args\":{";
}

void ExportText::describe(std::string_view what, std::uint64_t row, std::string_view name) {
  metadata(what, row);
  text += what == "process_labels" ? "\"labels\":\"" : "\"name\":\"";
  append_escaped(text, name, kLongestText);
  text += "\"}}";
}

void ExportText::describe(std::string_view what, std::uint64_t row, std::int64_t number) {
  metadata(what, row);
  text += "\"sort_index\":";
  append_number(text, number);
  text += "}}";
}

std::uint64_t write_slices(ExportText& out, std::uint64_t row, std::string_view title,
                           std::int64_t order, std::vector<Slice> slices) {
  std::ranges::stable_sort(slices, {}, &Slice::begin);
  std::vector<std::int64_t> ends;  // of the last slice in each row
  for (const Slice& slice : slices) {
    auto free = std::ranges::find_if(ends, [&](std::int64_t end) { return end <= slice.begin; });
    if (free == ends.end() && ends.size() < kMostRows) {
      std::string name(title);
      if (!ends.empty()) name += " (" + std::to_string(ends.size() + 1) + ")";
      out.describe("thread_name", row + ends.size(), name);
      out.describe("thread_sort_index", row + ends.size(), order);
      ends.push_back(slice.begin);
      free = ends.end() - 1;
    } else if (free == ends.end()) {
      free = std::ranges::min_element(ends);
    }
    const std::int64_t begin = std::max(slice.begin, *free);
    *free = std::max(slice.end, begin);
    out.begin_event('X', row + static_cast<std::uint64_t>(free - ends.begin()), begin);
    out.text += ",\"dur\":";
    append_microseconds(out.text, *free - begin);
    out.name(slice.name);
    out.text += ",\"args\":{" + slice.args + "}}";
  }
  return row + ends.size();
}

}  // namespace oddrank::trace

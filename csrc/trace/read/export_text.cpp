// Puts events together from texts and numbers.
#include "trace/read/export_text.hpp"

#include <algorithm>

#include "trace/read/json_text.hpp"

namespace oddrank::trace {
namespace {

// Of slices beside each other; bounds the work on a hostile file.
constexpr std::size_t kMostRows = 32;

// The ends of a row's slices that go on, the outermost first.
class Row {
 public:
  // Slices come in the order of their begins. False where it overlaps one of them in another way
  // than `within` allows.
  bool take(const Slice& slice, Within within) {
    while (!ends_.empty() && ends_.back() <= slice.begin) ends_.pop_back();
    const bool is_inside = within == Within::kSameRow && !ends_.empty();
    if (!ends_.empty() && !(is_inside && slice.end <= ends_.back())) return false;
    ends_.push_back(slice.end);
    return true;
  }

 private:
  std::vector<std::int64_t> ends_;
};

}  // namespace

std::int64_t ExportText::time(std::uint64_t tsc) noexcept {
  const auto found = clock_.realtime_ns(tsc);
  std::int64_t since = 0;
  if (found && !__builtin_sub_overflow(*found, origin_ns_, &since)) {
    last_ = std::min(since, end_);
  }
  return last_;
}

void ExportText::begin_event(char phase, std::uint64_t row, std::int64_t ns) {
  if (row != prefix_row_) {
    prefix_row_ = row;
    prefix_ = "\",\"pid\":";
    append_number(prefix_, process_id_);
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
  append_number(text, process_id_);
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
                           std::int64_t order, Within within, std::vector<Slice> slices) {
  std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<Row> rows;
  for (const Slice& slice : slices) {
    auto at = std::ranges::find_if(rows, [&](Row& each) { return each.take(slice, within); });
    if (at == rows.end()) {
      if (rows.size() == kMostRows) {
        ++out.left_out;
        continue;
      }
      std::string name(title);
      if (!rows.empty()) name += " (" + std::to_string(rows.size() + 1) + ")";
      out.describe("thread_name", row + rows.size(), name);
      out.describe("thread_sort_index", row + rows.size(), order);
      at = rows.insert(rows.end(), Row{});
      at->take(slice, within);
    }
    out.begin_event('X', row + static_cast<std::uint64_t>(at - rows.begin()), slice.begin);
    out.text += ",\"dur\":";
    append_microseconds(out.text, std::max(slice.end, slice.begin) - slice.begin);
    out.name(slice.name);
    out.text += ",\"args\":{" + slice.args + "}}";
  }
  return row + rows.size();
}

}  // namespace oddrank::trace

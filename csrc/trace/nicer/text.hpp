// The text and counts of NicerTrace's events. Prepares the text of each line and each call once: an
// event then only appends it.
#pragma once

#include <algorithm>
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
  std::vector<std::string> learn(const RecordFile& file, std::span<const FedEvent> events) {
    std::vector<std::string> wanted;
    std::optional<Dictionary> dictionary;
    for (const FedEvent& event : events) {
      const std::uint32_t id = event.place.code();
      if (event.missing != 0 || id == 0 || id >= kMostCodes || is_known(id)) continue;
      if (!dictionary) dictionary.emplace(file);
      if (const Code* code = dictionary->code(id)) add_code(*code, wanted);
    }
    return wanted;
  }
  // Sets the source lines of a file, with or without line ends.
  void add_source(const std::string& file, std::span<const std::string> lines) {
    const auto source = sources_.find(file);
    if (source == sources_.end()) return;
    std::vector<std::string>& made = source->second->lines;
    for (std::uint32_t i = 0; i < lines.size() && i < kMostLines; ++i) {
      made.push_back(formatted(source->second->base, i + 1, lines[i]));
    }
  }
  // Appends the text of these events.
  void write(std::span<const FedEvent> events, const Clock& clock, std::string& out) {
    const std::string pid = options_.pid == 0 ? "" : std::to_string(options_.pid) + ' ';
    for (const FedEvent& event : events) {
      if (event.missing != 0) {
        stacks_.clear();
        if (options_.says) {
          out += pid + "--- " + std::to_string(event.missing) +
                 " events are missing here: there was no room to keep them until they were "
                 "written\n";
        }
        continue;
      }
      const std::uint32_t id = event.place.code();
      const Kind kind = event.place.kind();
      if (kind == Kind::kGap) stacks_.erase(event.tid);
      if (!is_known(id)) continue;
      if (kind == Kind::kLine) {
        if (options_.says) out.append(pid).append(time_of(event, clock));
        write_line(codes_[id], event, out);
      } else if (kind == Kind::kCall || kind == Kind::kResume || kind == Kind::kThrow) {
        if (options_.says) out.append(pid).append(codes_[id].call);
        note_call(event.tid, id);
      } else if (options_.callers && !stacks_[event.tid].empty()) {
        stacks_[event.tid].pop_back();
      }
    }
  }

  // The results are of this object's strings.
  std::vector<LineCount> lines() const {
    std::vector<LineCount> lines;
    for (const auto& [file, source] : sources_) {
      for (std::uint32_t line = 0; line < source->counts.size(); ++line) {
        if (source->counts[line] != 0) lines.emplace_back(file, line, source->counts[line]);
      }
    }
    return lines;
  }
  std::vector<Function> called() const {
    std::vector<Function> functions;
    for (std::uint32_t id = 0; id < codes_.size(); ++id) {
      if (codes_[id].called) functions.push_back(function(id));
    }
    return functions;
  }
  // (caller, called).
  std::vector<std::pair<Function, Function>> callers() const {
    std::vector<std::pair<Function, Function>> pairs;
    for (const auto& [caller, called] : callers_) {
      pairs.emplace_back(function(caller), function(called));
    }
    return pairs;
  }

 private:
  // Ids are consecutive. Bounds the memory that a broken event can make a reader take.
  static constexpr std::uint32_t kMostCodes = 1 << 24;
  static constexpr std::uint32_t kMostLines = 1 << 20;  // per file: each count takes 8 bytes

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
    std::optional<LineTable> table;
    bool called = false;
  };

  static std::string_view last_part(std::string_view text, char separator) {
    return text.substr(text.rfind(separator) + 1);  // npos + 1 is 0
  }
  static std::string formatted(const std::string& base, std::uint32_t line,
                               std::string_view source) {
    const std::string number = std::to_string(line);
    std::string text = base + ':';
    text.append(number.size() < 6 ? 6 - number.size() : 0, ' ');
    text += number;
    text += ": ";
    text += source.substr(0, source.find_last_not_of("\r\n") + 1);
    return text + '\n';
  }
  // Formats as datetime.timedelta does, without fractions.
  static std::string duration(std::int64_t seconds) {
    const auto two = [](std::int64_t number) {
      return (number < 10 ? "0" : "") + std::to_string(number);
    };
    constexpr std::int64_t kDay = 86'400;
    std::string text;
    if (const std::int64_t days = seconds / kDay; days > 0) {
      text = std::to_string(days) + (days == 1 ? " day, " : " days, ");
    }
    const std::int64_t hours = seconds % kDay / 3600;
    return text + std::to_string(hours) + ':' + two(seconds % 3600 / 60) + ':' + two(seconds % 60);
  }

  bool is_known(std::uint32_t id) const noexcept {
    return id < codes_.size() && codes_[id].source != nullptr;
  }
  Function function(std::uint32_t id) const { return {codes_[id].source->file, codes_[id].name}; }
  void add_code(const Code& code, std::vector<std::string>& wanted) {
    if (codes_.size() <= code.id) codes_.resize(code.id + 1);
    CodeText& text = codes_[code.id];
    std::unique_ptr<Source>& source = sources_[std::string(code.file)];
    if (!source) {
      source = std::make_unique<Source>();
      source->file = code.file;
      source->base = last_part(code.file, '/');
      if (options_.says) wanted.push_back(source->file);
    }
    text.source = source.get();
    // Drops the enclosing functions, as trace.CoverageResults does.
    constexpr std::string_view kLocals = "<locals>.";
    const std::size_t at = code.qualified_name.rfind(kLocals);
    text.name = code.qualified_name.substr(at == std::string_view::npos ? 0 : at + kLocals.size());
    text.call = ' ' + module_of(code) + ':' + std::to_string(code.first_line) + ' ';
    text.call += last_part(code.qualified_name, '.');
    text.call += '\n';
    if (!code.linetable.empty()) text.table.emplace(code.linetable, code.first_line);
  }
  // Returns the dotted name of a module below a root, the script for code given as text, or the
  // path.
  std::string module_of(const Code& code) const {
    const std::string_view file = code.file;
    constexpr std::string_view kFrozen = "<frozen ";
    if (file.starts_with(kFrozen)) return std::string(file.substr(8, file.size() - 9));
    const bool is_ran = file.starts_with('<') && code.qualified_name == "<module>";
    if (is_ran && !options_.script.empty()) return options_.script;
    for (const std::string& root : options_.roots) {
      if (!file.starts_with(root)) continue;
      std::string module(file.substr(root.size()));
      const std::size_t dot = module.rfind('.');
      if (dot != std::string::npos && module.find('/', dot) == std::string::npos) {
        module.resize(dot);
      }
      std::ranges::replace(module, '/', '.');
      return module;
    }
    return std::string(file);
  }
  void write_line(const CodeText& code, const FedEvent& event, std::string& out) {
    std::optional<std::uint32_t> line;
    if (!event.place.is_offset()) {
      line = event.place.position();
    } else if (code.table) {
      line = code.table->line_at(event.place.position());
    }
    const std::uint32_t number = line.value_or(0);
    Source& source = *code.source;
    if (options_.counts && line && number < kMostLines) {
      if (source.counts.size() <= number) source.counts.resize(number + 1);
      ++source.counts[number];
    }
    if (!options_.says) return;
    if (number > 0 && number <= source.lines.size()) {
      out += source.lines[number - 1];
    } else {
      out += formatted(source.base, number, "");
    }
  }
  void note_call(std::uint32_t tid, std::uint32_t code) {
    codes_[code].called = true;
    if (!options_.callers) return;
    std::vector<std::uint32_t>& stack = stacks_[tid];
    if (!stack.empty()) callers_.emplace(stack.back(), code);
    stack.push_back(code);
  }
  const std::string& time_of(const FedEvent& event, const Clock& clock) {
    if (!options_.start_ns) return time_;  // empty
    const auto now = clock.realtime_ns(event.tsc);
    const std::int64_t since = now ? *now - *options_.start_ns : 0;
    // Never decrease if the clock is set back or a thread's events arrive late.
    const std::int64_t second = std::max({since / 1'000'000'000, second_, std::int64_t{0}});
    if (second != second_) {
      second_ = second;
      time_ = duration(second) + ' ';
    }
    return time_;
  }

  TextOptions options_;
  std::vector<CodeText> codes_;  // by id; `source` is null until seen
  std::unordered_map<std::string, std::unique_ptr<Source>> sources_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> stacks_;  // of ids, by tid
  std::set<std::pair<std::uint32_t, std::uint32_t>> callers_;
  std::int64_t second_ = -1;  // the second shown in time_
  std::string time_;
};

}  // namespace oddrank::trace

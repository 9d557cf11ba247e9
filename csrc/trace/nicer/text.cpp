// Prepares the text of each line and each call once: an event then only appends it.
#include "trace/nicer/text.hpp"

#include <algorithm>

namespace oddrank::trace {
namespace {

// Ids are consecutive. Bounds the memory that a broken event can make a reader take.
constexpr std::uint32_t kMostCodes = 1 << 24;
constexpr std::uint32_t kMostLines = 1 << 20;  // per file: each count takes 8 bytes

std::string_view last_part(std::string_view text, char separator) {
  return text.substr(text.rfind(separator) + 1);  // npos + 1 is 0
}

std::string formatted(const std::string& base, std::uint32_t line, std::string_view source) {
  const std::string number = std::to_string(line);
  std::string text = base + ':';
  text.append(number.size() < 6 ? 6 - number.size() : 0, ' ');
  text += number;
  text += ": ";
  text += source.substr(0, source.find_last_not_of("\r\n") + 1);
  return text + '\n';
}

// Drops the enclosing functions, as trace.CoverageResults does.
std::string_view name_of(std::string_view qualified_name) {
  constexpr std::string_view kLocals = "<locals>.";
  const std::size_t at = qualified_name.rfind(kLocals);
  return at == std::string_view::npos ? qualified_name : qualified_name.substr(at + kLocals.size());
}

// Formats as datetime.timedelta does, without fractions.
std::string duration(std::int64_t seconds) {
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

}  // namespace

std::vector<std::string> TextWriter::learn(const RecordFile& file,
                                           std::span<const FedEvent> events) {
  std::vector<std::string> wanted;
  std::unique_ptr<Dictionary> dictionary;
  for (const FedEvent& event : events) {
    const std::uint32_t id = event.place.code();
    if (event.missing != 0 || id == 0 || id >= kMostCodes) continue;
    if (id < codes_.size() && codes_[id].source != nullptr) continue;
    if (!dictionary) dictionary = std::make_unique<Dictionary>(file);
    if (const Code* code = dictionary->code(id)) add_code(*code, file.process().python, wanted);
  }
  return wanted;
}

void TextWriter::add_code(const Code& code, std::uint32_t python,
                          std::vector<std::string>& wanted) {
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
  text.name = name_of(code.qualified_name);
  text.call = ' ' + module_of(code) + ':' + std::to_string(code.first_line) + ' ';
  text.call += last_part(code.qualified_name, '.');
  text.call += '\n';
  if (!code.linetable.empty()) {
    text.table = std::make_unique<LineTable>(python, code.linetable, code.first_line);
  }
}

// Returns the dotted name of a module below a root, the script for code given as text, or the path.
std::string TextWriter::module_of(const Code& code) const {
  const std::string_view file = code.file;
  constexpr std::string_view kFrozen = "<frozen ";
  if (file.starts_with(kFrozen)) return std::string(file.substr(8, file.size() - 9));
  const bool is_ran = file.starts_with('<') && code.qualified_name == "<module>";
  if (is_ran && !options_.script.empty()) return options_.script;
  for (const std::string& root : options_.roots) {
    if (!file.starts_with(root)) continue;
    std::string module(file.substr(root.size()));
    const std::size_t dot = module.rfind('.');
    if (dot != std::string::npos && module.find('/', dot) == std::string::npos) module.resize(dot);
    std::ranges::replace(module, '/', '.');
    return module;
  }
  return std::string(file);
}

void TextWriter::add_source(const std::string& file, std::span<const std::string> lines) {
  const auto source = sources_.find(file);
  if (source == sources_.end()) return;
  std::vector<std::string>& made = source->second->lines;
  for (std::uint32_t i = 0; i < lines.size() && i < kMostLines; ++i) {
    made.push_back(formatted(source->second->base, i + 1, lines[i]));
  }
}

const std::string& TextWriter::time_of(const FedEvent& event, const Clock& clock) {
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

void TextWriter::write(std::span<const FedEvent> events, const Clock& clock, std::string& out) {
  const std::string pid = options_.pid == 0 ? "" : std::to_string(options_.pid) + ' ';
  for (const FedEvent& event : events) {
    if (event.missing != 0) {
      stacks_.clear();
      if (options_.says) {
        out += pid + "--- " + std::to_string(event.missing) +
               " events are missing here: there was no room to keep them until they were written\n";
      }
      continue;
    }
    const std::uint32_t id = event.place.code();
    const Kind kind = event.place.kind();
    const bool known = id != 0 && id < codes_.size() && codes_[id].source != nullptr;
    if (kind == Kind::kGap) stacks_.erase(event.tid);
    if (!known) continue;
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

void TextWriter::write_line(const CodeText& code, const FedEvent& event, std::string& out) {
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

void TextWriter::note_call(std::uint32_t tid, std::uint32_t code) {
  codes_[code].called = true;
  if (!options_.callers) return;
  std::vector<std::uint32_t>& stack = stacks_[tid];
  if (!stack.empty()) callers_.emplace(stack.back(), code);
  stack.push_back(code);
}

std::vector<TextWriter::LineCount> TextWriter::lines() const {
  std::vector<LineCount> lines;
  for (const auto& [file, source] : sources_) {
    for (std::uint32_t line = 0; line < source->counts.size(); ++line) {
      if (source->counts[line] != 0) lines.emplace_back(file, line, source->counts[line]);
    }
  }
  return lines;
}

std::vector<TextWriter::Function> TextWriter::called() const {
  std::vector<Function> functions;
  for (const CodeText& code : codes_) {
    if (code.called) functions.emplace_back(code.source->file, code.name);
  }
  return functions;
}

std::vector<std::pair<TextWriter::Function, TextWriter::Function>> TextWriter::callers() const {
  std::vector<std::pair<Function, Function>> pairs;
  const auto function = [this](std::uint32_t id) {
    return Function{codes_[id].source->file, codes_[id].name};
  };
  for (const auto& [caller, called] : callers_) {
    pairs.emplace_back(function(caller), function(called));
  }
  return pairs;
}

}  // namespace oddrank::trace

// Events as the text that NicerTrace prints, and what it counts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/read/clock.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/feed.hpp"
#include "trace/read/linetable.hpp"

namespace oddrank::trace {

struct TextOptions {
  bool says = true;  // else it only counts
  bool counts = true;
  bool callers = false;
  std::optional<std::int64_t> start_ns;  // wall clock: lines begin with the time since then
  std::uint32_t pid = 0;                 // not 0: lines begin with it
  std::string script;                    // whose namespace the text that is run has
  std::vector<std::string> roots;  // folders whose modules are shown as packages; with a slash
};

// One for a run. Calls are " module:line function", lines "h:mm:ss file:  line: source".
class TextWriter {
 public:
  struct LineCount {
    std::string file;
    std::uint32_t line = 0;
    std::uint64_t count = 0;
  };
  struct Function {
    std::string file;
    std::string name;
  };

  explicit TextWriter(TextOptions options) : options_(std::move(options)) {}

  // Looks up the code of these events where it is new; returns the files whose source is wanted.
  std::vector<std::string> learn(const RecordFile& file, std::span<const FedEvent> events);
  // With their line ends or without.
  void add_source(const std::string& file, std::span<const std::string> lines);
  // Appends the text of these events.
  void write(std::span<const FedEvent> events, const Clock& clock, std::string& out);

  std::vector<LineCount> lines() const;
  std::vector<Function> called() const;
  // (caller, called).
  std::vector<std::pair<Function, Function>> callers() const;

 private:
  struct Source {
    std::string file;
    std::string base;                   // its name without folders
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
  std::vector<CodeText> codes_;  // by id; without a source: not seen yet
  std::unordered_map<std::string, std::unique_ptr<Source>> sources_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> stacks_;  // of ids, by tid
  std::set<std::pair<std::uint32_t, std::uint32_t>> callers_;
  std::int64_t second_ = -1;  // that time_ says
  std::string time_;
};

}  // namespace oddrank::trace

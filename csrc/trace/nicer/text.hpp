// The text and counts of NicerTrace's events.
#pragma once

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
  std::vector<std::string> learn(const RecordFile& file, std::span<const FedEvent> events);
  // Sets the source lines of a file, with or without line ends.
  void add_source(const std::string& file, std::span<const std::string> lines);
  // Appends the text of these events.
  void write(std::span<const FedEvent> events, const Clock& clock, std::string& out);

  // The results are of this object's strings.
  std::vector<LineCount> lines() const;
  std::vector<Function> called() const;
  // (caller, called).
  std::vector<std::pair<Function, Function>> callers() const;

 private:
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
    std::unique_ptr<LineTable> table;
    bool called = false;
  };
  void add_code(const Code& code, std::uint32_t python, std::vector<std::string>& wanted);
  std::string module_of(const Code& code) const;
  void write_line(const CodeText& code, const FedEvent& event, std::string& out);
  void note_call(std::uint32_t tid, std::uint32_t code);
  const std::string& time_of(const FedEvent& event, const Clock& clock);

  TextOptions options_;
  std::vector<CodeText> codes_;  // by id; `source` is null until seen
  std::unordered_map<std::string, std::unique_ptr<Source>> sources_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> stacks_;  // of ids, by tid
  std::set<std::pair<std::uint32_t, std::uint32_t>> callers_;
  std::int64_t second_ = -1;  // the second shown in time_
  std::string time_;
};

}  // namespace oddrank::trace

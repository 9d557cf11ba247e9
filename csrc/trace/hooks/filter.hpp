// Decides how much is recorded of a code object, once for each.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/hooks/code_ids.hpp"

namespace oddrank::trace {

// A package and its level. `package` is a dotted name, "stdlib", "site-packages" (installed, not in
// the standard library), "uninstalled" (scripts, clones, editable installs), "*", or a folder that
// begins and ends with a slash.
struct Rule {
  std::string package;
  Level level = Level::kOff;
  bool operator==(const Rule&) const = default;
};

// Folders of the interpreter, each ending with a slash.
struct Roots {
  std::vector<std::string> stdlib;
  std::vector<std::string> site;  // checked first: may lie inside a stdlib folder
  bool operator==(const Roots&) const = default;
};

std::optional<Level> level_named(std::string_view name) noexcept;

class Filter {
 public:
  Filter(std::vector<Rule> rules, Roots roots);
  bool operator==(const Filter&) const = default;

  // Larger code objects record calls at most: CPython's line events take quadratic time there.
  static constexpr std::size_t kGiant = 4000;

  // Returns the level of the first rule that matches: the longest folder that contains `file`; the
  // longest package that is or contains `module`; the same for `run_as_main`, the real name of a
  // module that runs as __main__; stdlib, site-packages or uninstalled; "*". Off if none matches.
  Level level_of(std::string_view module, std::string_view run_as_main, std::string_view file,
                 std::size_t instructions) const noexcept;

 private:
  std::string_view where_it_lies(std::string_view module, std::string_view file) const noexcept;
  const Rule* closest(std::string_view module) const noexcept;
  const Rule* find(std::string_view package) const noexcept;
  const Rule* find_folder(std::string_view file) const noexcept;

  std::vector<Rule> rules_;
  Roots roots_;
};

}  // namespace oddrank::trace

// What is recorded of which code: decided once per code object.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/hooks/code_ids.hpp"

namespace oddrank::trace {

// A package and its level. Besides dotted names of packages: "stdlib", "site-packages" (installed,
// not the standard library), "uninstalled" (the rest: scripts, clones, editable installs), "*", and
// folders, which begin and end with a slash.
struct Rule {
  std::string package;
  Level level = Level::kOff;
  bool operator==(const Rule&) const = default;
};

// Folders of the interpreter, with a slash at their end.
struct Roots {
  std::vector<std::string> stdlib;
  std::vector<std::string> site;  // looked at first: it may lie inside the standard library's
  bool operator==(const Roots&) const = default;
};

std::optional<Level> level_named(std::string_view name) noexcept;

class Filter {
 public:
  Filter(std::vector<Rule> rules, Roots roots);
  bool operator==(const Filter&) const = default;

  // Code of more instructions is recorded by calls at most: CPython's own line events cost
  // quadratic time there.
  static constexpr std::size_t kGiant = 4000;

  // The rule of the longest folder that `file` lies in; else of the longest package that `module`
  // is or lies in; else that of which `run_as_main` does, a module's own name where it runs as
  // __main__; else that of where the file is; else that of "*"; else off.
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

// Decides how much is recorded of a code object, and remembers the decision with its id in the
// file.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/format/format.hpp"

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

struct CodeInfo {
  std::uint32_t id = 0;  // in the dictionary; 0 if the level is off
  Level level = Level::kOff;
};

// Hash table of code objects, open addressing, read at every call. An entry is erased when its code
// object is destroyed: addresses are reused (lambdas, exec, torch.compile). The GIL guards it;
// arm() refuses a build without a GIL.
class CodeTable {
 public:
  CodeTable();

  // Returns nullptr if the code object is not in the table.
  const CodeInfo* find(const PyCodeObject* code) const noexcept {
    for (std::size_t at = place(code);; at = (at + 1) & mask_) {
      if (slots_[at].code == code) return &slots_[at].info;
      if (slots_[at].code == nullptr) return nullptr;
    }
  }
  // Returns the entry, valid until the next change of the table; nullptr if out of memory.
  const CodeInfo* insert(const PyCodeObject* code, CodeInfo info) noexcept;
  void erase(const PyCodeObject* code) noexcept;
  void clear() noexcept;
  // Calls `see` with every code object and its CodeInfo, which it may change.
  template <typename See>
  void each(See&& see) {
    for (std::size_t i = 0; i <= mask_; ++i) {
      if (slots_[i].code != nullptr) see(slots_[i].code, slots_[i].info);
    }
  }

 private:
  struct Slot {
    const PyCodeObject* code = nullptr;
    CodeInfo info;
  };
  std::size_t place(const PyCodeObject* code) const noexcept {
    // Use the high bits of the product: the low bits of an address carry no information.
    return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(code) * 0x9E3779B97F4A7C15U >>
                                    shift_);
  }
  bool grow() noexcept;

  std::unique_ptr<Slot[]> slots_;
  std::size_t mask_;
  int shift_;
  std::size_t size_ = 0;
};

}  // namespace oddrank::trace

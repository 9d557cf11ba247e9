// From a code object to what the recorder does with it: its id in the file and its level.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>

namespace oddrank::trace {

// What is recorded of a code object: nothing; its place in the stack; calls and returns; lines.
enum class Level : std::uint8_t { kOff = 0, kWhere = 1, kCalls = 2, kLines = 3 };

struct CodeInfo {
  std::uint32_t id = 0;  // in the dictionary; 0: none, as of all that are off
  Level level = Level::kOff;
};

// A table of pointers, open addressing, read at every call. Entries leave when their code object is
// destroyed: addresses are used again (lambdas, exec, torch.compile). The GIL guards it; a build
// without a GIL needs another one and is refused by arm().
class CodeTable {
 public:
  CodeTable();

  // nullptr: not seen yet.
  const CodeInfo* find(const PyCodeObject* code) const noexcept {
    for (std::size_t at = place(code);; at = (at + 1) & mask_) {
      if (slots_[at].code == code) return &slots_[at].info;
      if (slots_[at].code == nullptr) return nullptr;
    }
  }
  // Returns the entry; nullptr where memory is out.
  const CodeInfo* insert(const PyCodeObject* code, CodeInfo info) noexcept;
  void erase(const PyCodeObject* code) noexcept;
  void clear() noexcept;
  // Calls `see` with every code object of the table.
  template <typename See>
  void each(See&& see) const {
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
    // Code objects are larger than 128 bytes and aligned: the low bits say nothing.
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

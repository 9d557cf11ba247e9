// Maps a code object to its id in the record file and its level.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>

namespace oddrank::trace {

// How much is recorded of a code object. Each level adds: frames in the stack; calls; lines.
enum class Level : std::uint8_t { kOff = 0, kWhere = 1, kCalls = 2, kLines = 3 };

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
  // Calls `see` with every code object and its CodeInfo.
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

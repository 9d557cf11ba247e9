// The table of code objects: insertion, removal, growth.
#include "trace/hooks/code_ids.hpp"

#include <bit>
#include <new>
#include <utility>

namespace oddrank::trace {
namespace {

constexpr std::size_t kFirst = 1024;

int shift_for(std::size_t slots) noexcept { return 64 - std::countr_zero(slots); }

}  // namespace

CodeTable::CodeTable()
    : slots_(std::make_unique<Slot[]>(kFirst)), mask_(kFirst - 1), shift_(shift_for(kFirst)) {}

const CodeInfo* CodeTable::insert(const PyCodeObject* code, CodeInfo info) noexcept {
  // Keep the table at most half full, so that failed lookups stay short.
  if (size_ * 2 >= mask_ && !grow()) return nullptr;
  std::size_t at = place(code);
  while (slots_[at].code != nullptr && slots_[at].code != code) at = (at + 1) & mask_;
  if (slots_[at].code == nullptr) ++size_;
  slots_[at] = {code, info};
  return &slots_[at].info;
}

void CodeTable::erase(const PyCodeObject* code) noexcept {
  std::size_t hole = place(code);
  while (slots_[hole].code != code) {
    if (slots_[hole].code == nullptr) return;
    hole = (hole + 1) & mask_;
  }
  --size_;
  // Backward-shift deletion: moves later entries whose home is at or before the hole.
  for (std::size_t at = (hole + 1) & mask_; slots_[at].code != nullptr; at = (at + 1) & mask_) {
    const std::size_t home = place(slots_[at].code);
    if (((at - home) & mask_) >= ((at - hole) & mask_)) {
      slots_[hole] = slots_[at];
      hole = at;
    }
  }
  slots_[hole] = {};
}

void CodeTable::clear() noexcept {
  for (std::size_t i = 0; i <= mask_; ++i) slots_[i] = {};
  size_ = 0;
}

bool CodeTable::grow() noexcept {
  const std::size_t slots = (mask_ + 1) * 2;
  std::unique_ptr<Slot[]> larger(new (std::nothrow) Slot[slots]);
  if (!larger) return false;
  const std::size_t before = mask_ + 1;
  std::swap(slots_, larger);
  mask_ = slots - 1;
  shift_ = shift_for(slots);
  for (std::size_t i = 0; i < before; ++i) {
    if (larger[i].code == nullptr) continue;
    std::size_t at = place(larger[i].code);
    while (slots_[at].code != nullptr) at = (at + 1) & mask_;
    slots_[at] = larger[i];
  }
  return true;
}

}  // namespace oddrank::trace

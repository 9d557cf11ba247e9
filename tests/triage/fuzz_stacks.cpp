// The fuzzer's target for stacks: any bytes as a file, whole and in pieces.
//
// Pieces must not change what is read: a file is read in chunks.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "triage/stack_text.hpp"

namespace {

using oddrank::triage::read_stack_text;
using oddrank::triage::Stacks;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const Stacks& found) {
  for (const auto& process : found.processes) {
    require(process.headline < found.texts.size());
    require(process.writer < found.writers.size() && process.fatal < found.texts.size());
  }
  for (const auto& thread : found.threads) {
    require(thread.process < found.processes.size() && thread.stack < found.stacks.size());
    require(thread.name < found.texts.size() && thread.state < found.texts.size());
  }
  for (const auto& error : found.errors) {
    require(error.process < found.processes.size() && error.stack < found.stacks.size());
    require(error.text < found.texts.size());
  }
  for (const auto& stack : found.stacks) {
    require(stack.size() <= oddrank::triage::kDeepest);
    for (const std::uint32_t frame : stack) require(frame < found.frames.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Stacks whole = read_stack_text(text);
  check(whole);
  const Stacks pieces = read_stack_text(text, 1 + (size > 0 ? data[0] % 61U : 0U));
  require(pieces.threads.size() == whole.threads.size());
  require(pieces.errors.size() == whole.errors.size());
  require(pieces.stacks.size() == whole.stacks.size());
  return 0;
}

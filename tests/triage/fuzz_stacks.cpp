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

using oddrank::triage::StackReader;
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
    require(stack.size() <= StackReader::kDeepest);
    for (const std::uint32_t frame : stack) require(frame < found.frames.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  StackReader whole;
  whole.read(0, text);
  whole.finish();
  check(whole.found());
  StackReader pieces;
  const std::size_t step = 1 + (size > 0 ? data[0] % 61U : 0U);
  for (std::size_t at = 0; at < size; at += step) pieces.read(0, text.substr(at, step));
  pieces.finish();
  require(pieces.found().threads.size() == whole.found().threads.size());
  require(pieces.found().errors.size() == whole.found().errors.size());
  require(pieces.found().stacks.size() == whole.found().stacks.size());
  return 0;
}

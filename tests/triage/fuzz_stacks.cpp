// The fuzzer's target for stacks: any bytes as a file, whole and in pieces, and the tree of them.
//
// Pieces must not change what is read: a file is read in chunks.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "triage/stack_text.hpp"
#include "triage/stack_tree.hpp"

namespace {

using oddrank::triage::StackReader;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const StackReader& reader) {
  for (const auto& process : reader.processes()) {
    require(process.command < reader.texts().size() && process.headline < reader.texts().size());
    require(process.writer.host < reader.texts().size() && process.fatal < reader.texts().size());
  }
  for (const auto& thread : reader.threads()) {
    require(thread.process < reader.processes().size() && thread.stack < reader.stack_count());
    require(thread.name < reader.texts().size() && thread.state < reader.texts().size());
  }
  for (const auto& error : reader.errors()) {
    require(error.process < reader.processes().size() && error.stack < reader.stack_count());
    require(error.text < reader.texts().size());
  }
  for (std::size_t i = 0; i < reader.stack_count(); ++i) {
    require(reader.stack(i).size() <= StackReader::kDeepest);
    for (const std::uint32_t frame : reader.stack(i)) require(frame < reader.frames().size());
  }
}

void show(const StackReader& reader) {
  oddrank::triage::StackTree tree;
  for (const auto& thread : reader.threads()) {
    std::vector<std::string_view> path;
    for (const std::uint32_t frame : reader.stack(thread.stack)) {
      path.push_back(reader.texts()[reader.frames()[frame].function]);
    }
    tree.add(path, {static_cast<std::int64_t>(thread.process), thread.line});
  }
  std::size_t frames = 0;
  for (const auto& row : tree.rows()) {
    frames += row.frames.size();
    require(row.count > 0 && !row.members.empty());
  }
  require(frames <= (reader.threads().size() + 1) * StackReader::kDeepest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  StackReader whole;
  whole.read(0, text);
  whole.finish();
  check(whole);
  show(whole);
  StackReader pieces;
  const std::size_t step = 1 + (size > 0 ? data[0] % 61U : 0U);
  for (std::size_t at = 0; at < size; at += step) pieces.read(0, text.substr(at, step));
  pieces.finish();
  require(pieces.threads().size() == whole.threads().size());
  require(pieces.errors().size() == whole.errors().size());
  require(pieces.stack_count() == whole.stack_count());
  return 0;
}

// Groups stacks of many processes into a tree of common paths, with the set of processes on each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "triage/stack_text.hpp"

namespace oddrank::triage {

class StackTree {
 public:
  // One line of the tree: frames that the same processes share and that lead to no branch.
  struct Row {
    std::size_t depth = 0;
    std::vector<std::uint32_t> frames;  // numbers of texts, outermost first
    std::string members;                // as ranges
    std::size_t count = 0;
  };

  // Adds a stack, outermost frame first, and the numbers of the processes that stand there.
  void add(const std::vector<std::string_view>& path, const std::vector<std::int64_t>& members);

  // Returns the lines in depth-first order. Of the branches at one place the rarest comes first.
  std::vector<Row> rows() const;
  std::string_view text(std::uint32_t number) const { return texts_[number]; }

 private:
  struct Node {
    std::uint32_t text = 0;
    std::uint32_t parent = 0;
    std::vector<std::uint32_t> children;
    std::vector<std::int64_t> ends_here;
  };

  Texts texts_;
  std::vector<Node> nodes_{1};                              // the first is the root
  std::unordered_map<std::uint64_t, std::uint32_t> known_;  // parent and text -> node
};

}  // namespace oddrank::triage

// The tree is small: as many nodes as frames differ. Sets are merged from the leaves up, once.
#include "triage/stack_tree.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "os/encoding.hpp"

namespace oddrank::triage {

void StackTree::add(const std::vector<std::string_view>& path,
                    const std::vector<std::int64_t>& members) {
  std::uint32_t at = 0;
  for (const std::string_view frame : path) {
    const std::uint32_t text = texts_.add(frame);
    const auto next = static_cast<std::uint32_t>(nodes_.size());
    const auto [found, fresh] =
        known_.try_emplace((static_cast<std::uint64_t>(at) << 32) | text, next);
    if (fresh) {
      nodes_[at].children.push_back(next);
      nodes_.push_back({text, at, {}, {}});
    }
    at = found->second;
  }
  auto& ends = nodes_[at].ends_here;
  ends.insert(ends.end(), members.begin(), members.end());
}

std::vector<StackTree::Row> StackTree::rows() const {
  // Children come after their parents: from the last to the first, each set is whole. A node that
  // leads to one place has that place's set.
  using Set = std::vector<std::int64_t>;
  std::vector<std::shared_ptr<const Set>> members(nodes_.size());
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    if (node.ends_here.empty() && node.children.size() == 1) {
      members[i] = members[node.children.front()];
      continue;
    }
    Set all = node.ends_here;
    for (const std::uint32_t child : node.children) {
      all.insert(all.end(), members[child]->begin(), members[child]->end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    members[i] = std::make_shared<const Set>(std::move(all));
  }
  const auto rarest_first = [&](std::vector<std::uint32_t> children) {
    std::sort(children.begin(), children.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(members[a]->size(), a) < std::pair(members[b]->size(), b);
    });
    return children;
  };
  std::vector<Row> rows;
  std::vector<std::pair<std::uint32_t, std::size_t>> open;  // nodes and depths, the next one last
  const auto push = [&](std::uint32_t node, std::size_t depth) {
    const std::vector<std::uint32_t> children = rarest_first(nodes_[node].children);
    for (std::size_t i = children.size(); i-- > 0;) open.emplace_back(children[i], depth);
  };
  push(0, 0);
  while (!open.empty()) {
    auto [node, depth] = open.back();
    open.pop_back();
    Row row;
    row.depth = depth;
    row.count = members[node]->size();
    row.members = folded(*members[node]);
    row.frames.push_back(nodes_[node].text);
    while (nodes_[node].children.size() == 1 && nodes_[node].ends_here.empty()) {
      node = nodes_[node].children.front();
      row.frames.push_back(nodes_[node].text);
    }
    rows.push_back(std::move(row));
    push(node, depth + 1);
  }
  return rows;
}

}  // namespace oddrank::triage

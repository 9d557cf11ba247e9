// Matches modules and files against the rules.
#include "trace/hooks/filter.hpp"

#include <algorithm>
#include <array>

namespace oddrank::trace {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"off", "where", "calls", "lines"};

bool lies_in(std::string_view file, const std::vector<std::string>& folders) noexcept {
  return std::any_of(folders.begin(), folders.end(),
                     [file](const std::string& folder) { return file.starts_with(folder); });
}

}  // namespace

std::optional<Level> level_named(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Level>(i);
  }
  return std::nullopt;
}

Filter::Filter(std::vector<Rule> rules, Roots roots)
    : rules_(std::move(rules)), roots_(std::move(roots)) {}

const Rule* Filter::find(std::string_view package) const noexcept {
  const auto found = std::find_if(rules_.begin(), rules_.end(),
                                  [package](const Rule& rule) { return rule.package == package; });
  return found == rules_.end() ? nullptr : &*found;
}

const Rule* Filter::find_folder(std::string_view file) const noexcept {
  const Rule* longest = nullptr;
  for (const Rule& rule : rules_) {
    if (!rule.package.starts_with('/') || !file.starts_with(rule.package)) continue;
    if (longest == nullptr || longest->package.size() < rule.package.size()) longest = &rule;
  }
  return longest;
}

std::string_view Filter::where_it_lies(std::string_view module,
                                       std::string_view file) const noexcept {
  if (file.starts_with("<frozen ") || lies_in(file, roots_.stdlib)) {
    return lies_in(file, roots_.site) ? "site-packages" : "stdlib";
  }
  if (lies_in(file, roots_.site)) return "site-packages";
  // Code without a file is a program's own (python -c, a notebook's cell), or was made by some
  // library for itself (a namedtuple's methods).
  const bool made = file.starts_with('<') && module != "__main__";
  return made ? "*" : "uninstalled";
}

const Rule* Filter::closest(std::string_view module) const noexcept {
  const Rule* rule = nullptr;
  for (std::string_view package = module; rule == nullptr && !package.empty();) {
    rule = find(package);
    const std::size_t dot = package.rfind('.');
    package = dot == std::string_view::npos ? std::string_view() : package.substr(0, dot);
  }
  return rule;
}

Level Filter::level_of(std::string_view module, std::string_view run_as_main, std::string_view file,
                       std::size_t instructions) const noexcept {
  const Rule* rule = find_folder(file);
  if (rule == nullptr) rule = closest(module);
  if (rule == nullptr) rule = closest(run_as_main);
  if (rule == nullptr) {
    rule = find(where_it_lies(module, file));
  }
  if (rule == nullptr) rule = find("*");
  const Level level = rule == nullptr ? Level::kOff : rule->level;
  return instructions > kGiant ? std::min(level, Level::kCalls) : level;
}

}  // namespace oddrank::trace

// What many dumps have in common, kept once: groups, frames, stacks, signatures of operations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace oddrank {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
};
template <typename Mapped>
using TextMap = std::unordered_map<std::string, Mapped, TextHash, std::equal_to<>>;

// How an operation is called, and which sizes all ranks must have in common.
struct OpRule {
  enum class Sizes : std::uint8_t { none, input, output };

  std::string_view recorded;  // as backends record it
  std::string_view op;        // as users call it
  Sizes sizes = Sizes::none;
  bool dtype = true;         // whether all ranks must have the same
  bool synchronises = true;  // nobody gets out before everybody is in
};

// Returns the rule of a recorded operation ("_all_gather_base"), null if it is not known.
const OpRule* op_rule(std::string_view recorded) noexcept;

// Returns the size of an element of a dtype as torch writes it ("BFloat16"), 0 if unknown.
std::int64_t dtype_bytes(std::string_view dtype) noexcept;

// What all ranks must issue alike. Two that are equal have one id.
struct FlightSignature {
  std::string op;
  std::string dtype;
  std::string sizes;  // of one rank: others may have another shape of as many elements
  std::int64_t elements = -1;
  std::int64_t group_size = 0;  // as the sizes show it; 0: they don't
  bool synchronises = false;
  bool coalesced = false;
};

struct FlightFrame {
  std::string function;
  std::string file;
  std::int64_t line = 0;
};

struct FlightGroup {
  std::string name;
  std::string text;
  std::vector<std::int32_t> ranks;  // in the order of the group's own ranks; empty: unknown
  bool whole_world() const { return text == "default_pg" || name == "default_pg"; }
};

inline constexpr std::uint32_t kNoId = UINT32_MAX;

// Texts to numbers from 0, for several threads.
template <typename Thing>
class Interned {
 public:
  explicit Interned(std::size_t most) : most_(most) {}

  // Returns the id of `key`; makes its thing by `make` at the first time. kNoId if it is full.
  template <typename Make>
  std::uint32_t id(std::string_view key, Make make) {
    const std::lock_guard lock(mutex_);
    if (const auto found = ids_.find(key); found != ids_.end()) return found->second;
    if (things_.size() >= most_) return kNoId;
    things_.push_back(std::make_unique<Thing>(make()));
    const auto made = static_cast<std::uint32_t>(things_.size() - 1);
    ids_.emplace(key, made);
    return made;
  }
  // Stays where it is for as long as this lives.
  Thing& operator[](std::uint32_t id) const {
    const std::lock_guard lock(mutex_);
    return *things_[id];
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return things_.size();
  }

 private:
  std::size_t most_;
  mutable std::mutex mutex_;
  TextMap<std::uint32_t> ids_;
  std::vector<std::unique_ptr<Thing>> things_;
};

struct FlightTables {
  Interned<FlightGroup> groups{std::size_t{4} << 20};
  Interned<FlightFrame> frames{std::size_t{1} << 18};
  Interned<std::vector<std::uint32_t>> stacks{std::size_t{1} << 16};  // ids of frames
  Interned<FlightSignature> signatures{std::size_t{1} << 20};
};

}  // namespace oddrank

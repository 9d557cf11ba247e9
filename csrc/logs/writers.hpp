// Writers of lines: prefixes with texts of their own, and the number that a reader gives to each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "logs/prefixes.hpp"

namespace oddrank::logs {

// Prefix with texts of its own.
struct Writer : WriterIds {
  std::string host;
  std::string pod;

  Writer() = default;
  explicit Writer(const Prefix& prefix) : WriterIds(prefix), host(prefix.host), pod(prefix.pod) {}
  // Returns the same with views into this writer.
  Prefix prefix() const {
    Prefix who{*this};
    who.host = host;
    who.pod = pod;
    return who;
  }
  bool is(const Prefix& who) const {
    return WriterIds::operator==(who) && Prefix::same(host, who.host) && Prefix::same(pod, who.pod);
  }
  bool operator==(const Writer&) const = default;
};

// For maps of writers that are asked by prefix.
struct HashWriter {
  using is_transparent = void;
  std::size_t operator()(const Prefix& prefix) const;
  std::size_t operator()(const Writer& writer) const { return (*this)(writer.prefix()); }
};
struct SameWriter {
  using is_transparent = void;
  static const Prefix& view(const Prefix& prefix) { return prefix; }
  static Prefix view(const Writer& writer) { return writer.prefix(); }
  bool operator()(const auto& a, const auto& b) const { return view(a).same_writer(view(b)); }
};

// Maps prefixes to numbers. Asks its owner once for each writer: several writers may be one rank.
class WriterNumbers {
 public:
  using Ask = std::function<std::size_t(const Writer&)>;
  // Each number in a text may look like a new writer: later ones count as lines without a writer.
  static constexpr std::size_t kMost = 65'536;

  explicit WriterNumbers(Ask ask) : ask_(std::move(ask)) {}

  std::size_t operator()(const Prefix& who) {
    if (!known_.empty() && who.same_writer(last_)) return number_;
    if (!recent_.empty()) {
      const Slot* slot = &recent_[place(who)];
      for (const Slot* end = slot + 2; slot < end; ++slot) {
        if (slot->writer != nullptr && slot->writer->is(who)) return slot->number;
      }
    }
    return find(who);
  }

  // Asks again for each writer: the same prefix is another process in another file.
  void forget() {
    known_.clear();
    recent_.clear();
  }

 private:
  // Writers that wrote lately are remembered: in most logs another one writes each line.
  static constexpr std::size_t kSlots = 512;
  struct Slot {
    const Writer* writer = nullptr;  // a key of the map, which never moves
    std::size_t number = 0;
  };

  // Returns where the two slots of a writer begin.
  static std::size_t place(const Prefix& who) { return HashWriter()(who) % kSlots / 2 * 2; }
  std::size_t find(const Prefix& who);

  Ask ask_;
  std::unordered_map<Writer, std::size_t, HashWriter, SameWriter> known_;
  std::vector<Slot> recent_;
  Prefix last_;  // that find() found; views into a key of the map, which never moves
  std::size_t number_ = 0;
};

}  // namespace oddrank::logs

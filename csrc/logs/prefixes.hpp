// Finds launchers' prefix of a line, and the line's writer: the only place that knows launchers'
// prefixes. Each form is a function and a row of the table in prefixes.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace oddrank::logs {

// The numbers of a line's writer. -1: not given.
struct WriterIds {
  std::int64_t rank = -1;         // global rank
  std::int64_t local_rank = -1;   // counted by this node's launcher
  std::int64_t task = -1;         // srun, mpirun: the global rank, or a node that runs a launcher
  std::int64_t host_number = -1;  // host:N: the local or the global rank, as the user chose
  std::int64_t pid = -1;

  bool operator==(const WriterIds&) const = default;
};

// A line's writer, as far as its prefixes say. Empty: not given. The views point into the line.
struct Prefix : WriterIds {
  std::size_t text = 0;  // where the line's own text begins
  std::string_view host{};
  std::string_view pod{};
  char stream = '\0';   // mpirun: 'o' of stdout, 'e' of stderr, 'd' of stddiag
  std::size_t tag = 0;  // where mpirun's tag ends, if `stream` is known

  bool same_writer(const Prefix& other) const {
    return WriterIds::operator==(other) && same(host, other.host) && same(pod, other.pod);
  }
  bool empty() const { return same_writer(Prefix{}); }
  // Most are empty: then no bytes are compared.
  static bool same(std::string_view a, std::string_view b) {
    return a.size() == b.size() && (a.empty() || a == b);
  }
};

// Returns the prefixes of a line. Several may be nested, the outermost first; an inner one wins
// where both say the same thing, except for Ray's rank.
Prefix find_prefix(std::string_view line);

// The same for a line with a progress bar (tqdm) glued in front of it.
Prefix find_prefix_behind_bar(std::string_view line);

// Returns where another process's text begins in a torn line: the next "[rankN]:", "[defaultN]:",
// "[host:rankN] " or mpirun's "[1,N]<stdout>:" behind `from`. npos if there is none.
std::size_t next_torn(std::string_view line, std::size_t from);

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

// Finds what launchers put in front of a line, and who wrote the line: the only place that knows
// launchers' prefixes. Each form is a function and a row of the table in prefixes.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace oddrank::logs {

// The numbers of who wrote a line. -1: not said.
struct WriterIds {
  std::int64_t rank = -1;         // global rank
  std::int64_t local_rank = -1;   // of the launcher of this node
  std::int64_t task = -1;         // srun, mpirun: the global rank, or a node that runs a launcher
  std::int64_t host_number = -1;  // host:N: the local or the global rank, as the user chose
  std::int64_t pid = -1;

  bool operator==(const WriterIds&) const = default;
};

// Who wrote a line, as far as its prefixes say. Empty: not said. The views point into the line.
struct Prefix : WriterIds {
  std::size_t text = 0;  // where the line's own text begins
  std::string_view host;
  std::string_view pod;
  bool repeated = false;  // Ray printed this line for other processes, too
  char stream = '\0';     // mpirun: 'o' of stdout, 'e' of stderr, 'd' of stddiag
  std::size_t tag = 0;    // where mpirun's tag ends, if `stream` is known

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

}  // namespace oddrank::logs

// Reads launchers' prefixes, shows an example of each, and has their table: which to try on a line,
// and in which order.
#include "logs/prefixes.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "logs/patterns.hpp"
#include "logs/timestamps.hpp"
#include "os/encoding.hpp"

namespace oddrank::logs {
namespace {

constexpr auto kNone = std::string_view::npos;
// The forms: each takes its own from the front of a text, notes its values, and returns the number
// of bytes taken: 0 if the text begins otherwise. The table below says where each is tried.

constexpr std::size_t kTagTime = 24;  // bytes of the time in front of mpirun's tag

bool is_small(char c) { return is_lower(c) || is_digit(c) || c == '-' || c == '.'; }

// Returns whether a name is a word with a number: gpu0, step-12, Epoch_3. A number with a zero in
// front is a host's: gpu07.
bool is_word(std::string_view word, std::string_view number) {
  constexpr auto kNumbered = split<34>(
      "step epoch iter gpu cuda layer python torch stage fold loss test line phase round batch h "
      "nccl utf sha md int float fp bf v port pid conv fc device uint block param");
  if (number.size() > 1 && number[0] == '0') return false;
  while (!word.empty() && !is_letter(word.back()) && !is_digit(word.back())) word.remove_suffix(1);
  return std::any_of(kNumbered.begin(), kNumbered.end(), [word](std::string_view each) {
    return std::equal(word.begin(), word.end(), each.begin(), each.end(),
                      [](char a, char b) { return lower(a) == b; });
  });
}

// Returns whether the labels of a name are a host's: none is a number (0.5, model.layers.0.mlp), or
// four are (an address). The last is no suffix of a source file.
bool has_labels_of_host(std::string_view name) {
  std::size_t labels = 0, numbers = 0;
  std::string_view label;
  for (std::string_view rest = name; !rest.empty(); ++labels) {
    label = rest.substr(0, rest.find('.'));
    if (std::all_of(label.begin(), label.end(), is_digit)) ++numbers;
    rest.remove_prefix(std::min(label.size() + 1, rest.size()));
  }
  constexpr auto kSources = split<10>("py cpp cc cu h hpp cuh c pyx sh");
  const bool is_file =
      labels > 1 && std::find(kSources.begin(), kSources.end(), label) != kSources.end();
  return !is_file && (numbers == 0 || (numbers == 4 && labels == 4));
}

// Returns whether a name in front of ": " or ":3: " may be a host: it has a digit. With capitals
// or '_' it has a number at the end, behind '-' or '_': DGX-07, node_7.
bool may_be_host(std::string_view name) {
  const std::size_t letters = name.find_last_not_of("0123456789") + 1;
  const std::string_view word = name.substr(0, letters), number = name.substr(letters);
  if (std::all_of(name.begin(), name.end(), is_small)) {
    if (std::none_of(name.begin(), name.end(), is_digit)) return name == "localhost";
  } else if (number.empty() || word.empty() || (word.back() != '-' && word.back() != '_')) {
    return false;
  }
  return !is_word(word, number) && has_labels_of_host(name);
}

// Returns whether a text begins with a year: "2026-".
bool is_year(std::string_view text) {
  std::int64_t year = 0;
  return take<"%4-">(text, year) && year >= 1000;
}

// Returns whether a text is a number and nothing else: "conv1: 0.3" names a value, no host.
bool is_value(std::string_view text) {
  if (text.starts_with("nan") || text.starts_with("inf")) return text.size() == 3;
  return !text.empty() && text.find_first_not_of("0123456789.+-eE") == std::string_view::npos;
}

std::size_t taken(std::string_view text, std::string_view left) {
  return text.size() - left.size();
}

// A form that is one pattern, and where its parts go.
template <Pattern kPattern, auto... kParts>
std::size_t form(std::string_view text, Prefix& who) {
  std::string_view left = text;
  Prefix made = who;
  if (!take<kPattern>(left, made.*kParts...)) return 0;
  who = made;
  return taken(text, left);
}

// torchrun --tee: "[default3]:", "[worker3]:", with the host as the role "[node7:3]:" or
// "[worker/node7:3]:", with both ranks "[default3|11]:", and a bare "[11]:".
std::size_t torchrun(std::string_view text, Prefix& who) {
  std::string_view left = text.substr(1);
  std::string_view name = take_while(left, is_name);
  if (take<"/">(left)) name = take_while(left, is_name);
  std::int64_t number = 0, rank = -1;
  if (left.starts_with(':')) {
    if (name.empty() || !take<":%7]:">(left, number)) return 0;
    who.host = name;
    who.local_rank = number;
    return taken(text, left);
  }
  const std::size_t letters = name.find_last_not_of("0123456789") + 1;
  std::string_view digits = name.substr(letters);
  if (!take_digits(digits, number, 7)) return 0;
  if (letters == 0) {  // an entry of torchelastic's table is "[0]:" and nothing else
    if (!take<"]:">(left) || left.empty()) return 0;
    who.task = number;
    return taken(text, left);
  }
  if ((left.starts_with('|') && !take<"|%7">(left, rank)) || !take<"]:">(left)) return 0;
  const bool is_rank = name.substr(0, letters) == "rank";
  (is_rank ? who.rank : who.local_rank) = number;
  if (!is_rank && rank >= 0) who.rank = rank;
  return taken(text, left);
}

// mpirun --tag-output: "[1,3]<stdout>:", PRRTE: "[prterun-node7-99@1,3]<stderr>: "; horovodrun:
// "[3]<stdout>:"; SageMaker: "[1,mpirank:3,algo-1]<stdout>:".
std::size_t mpirun(std::string_view text, Prefix& who) {
  std::string_view left = text, host;
  if (!take<"[">(left)) return 0;
  const bool prrte = left.empty() || !is_digit(left[0]);
  std::int64_t number = 0;
  if (prrte) {
    take_while(left, is_name);
    if (!take<"@">(left)) return 0;
  }
  if (!take<"%d">(left, number)) return 0;
  if (take<",">(left)) {
    const bool sagemaker = take<"mpirank:">(left);
    if (!take<"%d">(left, number)) return 0;
    if (sagemaker) take<",%n">(left, host);
  }
  if (!take<"]<std">(left)) return 0;
  const std::string_view stream = take_while(left, is_lower);
  if (stream.empty() || !take<">">(left)) return 0;
  if (take<":">(left) && prrte) take<" ">(left);
  if (!host.empty()) who.host = host;
  who.task = number;
  who.stream = stream[0];
  return taken(text, left);
}

// mpirun --timestamp-output: "Mon Nov 23 15:00:00 2026[1,3]<stdout>:". Only its time is skipped.
std::size_t mpirun_time(std::string_view text, Prefix& /*who*/) {
  if (text.size() <= kTagTime || text[kTagTime] != '[' || text[3] != ' ' || text[7] != ' ')
    return 0;
  Prefix behind;
  return text[13] == ':' && text[16] == ':' && mpirun(text.substr(kTagTime), behind) > 0 ? kTagTime
                                                                                         : 0;
}

// Messages of mpirun and the MPI library themselves: "[node7:12345] ".
std::size_t mpi_message(std::string_view text, Prefix& who) {
  return is_letter(text[1]) ? form<"[%n:%d] ", &Prefix::host, &Prefix::pid>(text, who) : 0;
}

// Determined: "[2026-09-02T15:29:45.33Z] 1a2b3c4d [rank=3] || ", and without the rank.
std::size_t determined(std::string_view text, Prefix& who) {
  const std::size_t end = text.substr(0, kLongestPrefix).find("|| ");
  if (end == kNone || !is_year(text.substr(1))) return 0;
  const std::string_view front = text.substr(0, end);
  if (front.find("Z] ") == kNone) return 0;
  if (const std::size_t rank = front.rfind(" [rank="); rank != kNone) {
    std::string_view value = front.substr(rank);
    std::int64_t number = 0;
    if (take<" [rank=%7] ">(value, number) && value.empty()) who.rank = number;
  }
  return end + 3;
}

// Colours whose escape character was lost on the way: "[36m". Whole ones are skipped everywhere.
std::size_t bare_colour(std::string_view text, Prefix& /*who*/) {
  std::string_view left = text.substr(1);
  take_while(left, [](char c) { return is_digit(c) || c == ';'; });
  return take<"m">(left) ? taken(text, left) : 0;
}

// Ray: "(Worker[rank=9] pid=3098846, ip=10.65.5.217)", "(pid=12)"; vLLM: "(VllmWorker rank=3
// pid=12)", whose rank counts in its engine; a job may have several engines.
std::size_t ray(std::string_view text, Prefix& who) {
  text = text.substr(0, kLongestPrefix);
  std::size_t end = text.find(')');
  // "(Worker(train-1) pid=12)": a name may have brackets, too.
  if (const std::size_t inner = text.find('(', 1); inner < end) end = text.find(')', end + 1);
  if (end == kNone) return 0;
  const std::string_view inside = text.substr(0, end);
  const std::size_t pid_at = inside.starts_with("(pid=") ? 1 : inside.find(" pid=") + 1;
  if (pid_at == 0) return 0;
  std::string_view value = inside.substr(pid_at);
  std::int64_t number = 0;
  if (!take<"pid=%d">(value, number)) return 0;
  who.pid = number;
  if (const std::size_t ip = inside.find("ip=", pid_at); ip != kNone) {
    value = inside.substr(ip + 3);
    who.host = take_while(value, [](char c) { return is_name(c) || c == ':'; });
  }
  const std::size_t rank = inside.substr(0, pid_at).find("rank=");
  if (rank != kNone && !inside.starts_with("(VllmWorker ")) {
    value = inside.substr(rank);
    if (take<"rank=%7">(value, number)) who.rank = number;
  }
  return end + 1;
}

// srun --label, flux: "12: ", padded with spaces on the left.
std::size_t srun(std::string_view text, Prefix& who) {
  std::string_view left = text.substr(std::min(text.find_first_not_of(' '), text.size()));
  std::int64_t task = 0;
  if (taken(text, left) > 5 || !take<"%7:">(left, task)) return 0;
  if (!left.empty() && !take<" ">(left)) return 0;
  who.task = task;
  return taken(text, left);
}

// kubectl --timestamps, docker, GitHub: "2026-09-02T15:29:45.3372976Z "; without a zone only in
// front of "[rankN]:", since lines of logging begin so, too. Only skipped.
std::size_t stamp(std::string_view text, Prefix& /*who*/) {
  // Lines of logging begin so, too, and are many: the text behind the time identifies most.
  std::size_t end = 19;
  while (end < text.size() && (is_digit(text[end]) || text[end] == '.' || text[end] == ',')) ++end;
  if (text.size() < end + 2 || (text[end] == ' ' && text[end + 1] != '[')) return 0;
  std::string_view left = text;
  const auto time = take_iso(left);
  if (!time || text[4] != '-' || text[10] == '_' || !take<" ">(left)) return 0;
  end = taken(text, left);
  const bool zone = time->clock == Timestamp::Clock::utc && text.find(' ', 11) + 1 == end;
  return zone || left.starts_with("[rank") ? end : 0;
}

// A host in front: pdsh "node7: ", templates of torchrun "node7:3: ", NCCL "node7:99:101 [3] ".
std::size_t host(std::string_view text, Prefix& who) {
  std::string_view left = text;
  const std::string_view name = take_while(left, is_name);
  std::int64_t first = 0, second = 0;
  if (name.size() < 2) return 0;
  if (take<":%d:">(left, first)) {
    if (take<"%d">(left, second)) {  // host:pid:tid [device]; not the time 10:42:28 [0]
      if (is_year(name) || std::all_of(name.begin(), name.end(), is_digit)) return 0;
      if (!take<" [%4] ">(left, second)) return 0;
      who.pid = first;
    } else {
      if (first > 9'999'999 || !take<" ">(left) || !may_be_host(name)) return 0;
      who.host_number = first;
    }
    who.host = name;
    return taken(text, left);
  }
  if (!take<": ">(left)) return 0;
  if (std::string_view rank = name; take<"rank">(rank)) {
    if (!take_digits(rank, first, 7) || !rank.empty()) return 0;
    who.rank = first;
    return taken(text, left);
  }
  if (!may_be_host(name) || is_value(left)) return 0;
  who.host = name;
  return taken(text, left);
}

// syslog: "Apr 19 10:42:28 node7 train[123]: ". The pid is a service's, which may be torchrun.
std::size_t syslog(std::string_view text, Prefix& who) {
  std::string_view left = text, name;
  std::int64_t part = 0;
  if (take_while(left, is_letter).size() != 3 || !take<" ">(left)) return 0;
  take<" ">(left);
  if (!take<"%2 %2:%2:%2 %n ">(left, part, part, part, part, name)) return 0;
  if (take_while(left, [](char c) { return is_name(c) || c == '/'; }).empty()) return 0;
  take<"[%d]">(left, part);
  if (!take<": ">(left)) return 0;
  who.host = name;
  return taken(text, left);
}

// docker compose: "worker-1  | ".
std::size_t compose(std::string_view text, Prefix& who) {
  std::string_view left = text;
  const std::string_view name = take_while(left, is_name);
  const std::size_t letters = name.find_last_not_of("0123456789");
  if (letters == kNone || letters + 1 == name.size() || name[letters] != '-') return 0;
  if (take_while(left, [](char c) { return c == ' '; }).empty() || !take<"| ">(left)) return 0;
  who.pod = name;
  return taken(text, left);
}

// accelerate test and other parents that print a child's output: "stderr: "; logs of Kubernetes'
// nodes, behind a time: "stderr F " (F: a full line, P: a part of one).
std::size_t stream(std::string_view text, Prefix& /*who*/) {
  std::string_view left = text;
  if (!take<"stderr">(left) && !take<"stdout">(left)) return 0;
  return take<": ">(left) || take<" F ">(left) || take<" P ">(left) ? taken(text, left) : 0;
}

constexpr std::size_t kNested = 8;      // prefixes of one line
constexpr std::size_t kBarLimit = 512;  // a progress bar ends before this byte

using Parse = std::size_t (*)(std::string_view text, Prefix& who);

struct Row {
  char first;   // '0': any digit; 'a': any letter; else this very character
  char second;  // the same of the character behind a bracket; '.': any
  // Characters that may follow the first run of letters and digits, not counting a bracket before
  // it: these three characters rule out all rows for most lines. Empty: anything.
  std::string_view after;
  Parse parse;
};
constexpr Row kRows[] = {
    // torch's C++ and Python messages, and Lightning's
    {'[', 'r', "]", form<"[rank%7]:", &Prefix::rank>},
    {'[', 'r', ":", form<"[rank: %7] ", &Prefix::rank>},
    {'[', '0', ",]", mpirun},
    {'[', 'a', "@", mpirun},
    // kubectl logs --prefix
    {'[', 'p', "/", form<"[pod/%n/%N]", &Prefix::pod>},
    {'[', '.', "]:/|", torchrun},
    {'[', 'a', ":", mpi_message},
    // oddrank.install_printing(prefix="[{host}:rank{rank}] ")
    {'[', '.', ":", form<"[%n:rank%7] ", &Prefix::host, &Prefix::rank>},
    {'[', '0', ":", determined},
    {'[', '0', "", bare_colour},
    {'(', '.', "", ray},
    {'0', '.', ":", srun},
    {' ', '.', "", srun},
    {'0', '.', ": ", stamp},
    {'0', '.', ":", host},
    {'a', '.', ": ", stream},
    {'a', '.', ":", host},
    {'a', '.', " ", syslog},
    {'a', '.', " ", compose},
    {'a', '.', " ", mpirun_time},
};
static_assert(std::size(kRows) <= 32);

constexpr bool is_of(char c, char kind) {
  return kind == '.' || (kind == '0' ? is_digit(c) : kind == 'a' ? is_letter(c) : kind == c);
}

using RowsOfByte = std::array<std::uint32_t, 256>;

// Returns for each byte the rows that it fits, a bit a row.
constexpr RowsOfByte rows_by(auto fits) {
  RowsOfByte rows{};
  for (std::size_t byte = 0; byte < rows.size(); ++byte) {
    for (std::size_t row = 0; row < std::size(kRows); ++row) {
      if (fits(kRows[row], static_cast<char>(byte))) rows[byte] |= 1U << row;
    }
  }
  return rows;
}

constexpr RowsOfByte kByFirst = rows_by([](const Row& row, char c) { return is_of(c, row.first); });
constexpr RowsOfByte kBySecond =
    rows_by([](const Row& row, char c) { return is_of(c, row.second); });
constexpr RowsOfByte kByAfter = rows_by([](const Row& row, char c) {
  return row.after.empty() || row.after.find(c) != std::string_view::npos;
});

std::size_t one_prefix(std::string_view text, Prefix& who) {
  const auto byte = [text](std::size_t at) -> std::size_t {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  auto rows = kByFirst[byte(0)];
  if (rows == 0) return 0;
  std::size_t end = text[0] == '[' ? 1 : 0;
  if (end == 1) rows &= kBySecond[byte(1)];
  while (end < text.size() && end < kLongestPrefix && is_name(text[end])) ++end;
  rows &= kByAfter[byte(end)];
  for (; rows != 0; rows &= rows - 1) {
    const Row& row = kRows[std::countr_zero(rows)];
    if (const std::size_t taken = row.parse(text, who); taken > 0) return taken;
  }
  return 0;
}

void add_prefixes(std::string_view line, Prefix& who) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (who.text == 0 && line[0] == kByteOrderMark[0] && line.starts_with(kByteOrderMark)) {
    who.text = kByteOrderMark.size();
  }
  for (std::size_t nested = 0; nested < kNested && who.text < line.size();) {
    if (line[who.text] == '\x1b') {
      who.text = std::min(behind_escape(line, who.text), line.size());
    } else {
      const std::size_t taken = one_prefix(line.substr(who.text), who);
      if (taken == 0) return;
      who.text += taken;
      ++nested;
    }
    if (who.stream != '\0' && who.tag == 0) who.tag = who.text;
    // One space belongs to the prefix; more belong to the text. Behind mpirun's tag all do.
    if (nested > 0 && who.tag != who.text && line[who.text - 1] != ' ' && who.text < line.size() &&
        line[who.text] == ' ') {
      ++who.text;
    }
  }
}

}  // namespace

Prefix find_prefix(std::string_view line) {
  Prefix who;
  if (line.empty()) return who;
  // Nearly all lines of a log without prefixes end here.
  const auto first = static_cast<unsigned char>(line[0]);
  if (first != 0x1b && first != 0xef && kByFirst[first] == 0) return who;
  add_prefixes(line, who);
  return who;
}

Prefix find_prefix_behind_bar(std::string_view line) {
  Prefix who = find_prefix(line);
  const std::string_view text = line.substr(who.text, kBarLimit);
  for (const std::string_view rate : {"it/s", "s/it"}) {
    const std::size_t found = text.find(rate);
    if (found == kNone) continue;
    const std::size_t end = text.find(']', found);
    if (end == kNone || who.text + end + 1 >= line.size()) continue;
    who.text += end + 1;
    add_prefixes(line, who);
    break;
  }
  return who;
}

std::size_t next_torn(std::string_view line, std::size_t from) {
  for (; (from = line.find('[', from)) != kNone; ++from) {
    const std::string_view text = line.substr(from);
    // Nearly all brackets are no prefix's.
    if (text.size() < 8) continue;
    Prefix who;
    if (is_digit(text[1]) && mpirun(text, who) > 0) return from;
    if (!is_letter(text[1])) continue;
    std::string_view left = text;
    if (take<"[rank">(left) || take<"[default">(left)) {
      if (!take_while(left, is_digit).empty() && take<"]:">(left)) return from;
    }
    left = text;
    if (take<"[%N:rank">(left) && !take_while(left, is_digit).empty() && take<"] ">(left)) {
      return from;
    }
  }
  return kNone;
}

std::size_t HashWriter::operator()(const Prefix& p) const {
  std::size_t hash = p.host.empty() && p.pod.empty() ? 0
                                                     : std::hash<std::string_view>()(p.host) * 31 +
                                                           std::hash<std::string_view>()(p.pod);
  // Products that do not wait for each other: this runs where the writer changes, at each line.
  hash += static_cast<std::size_t>(p.rank) * 0x9E3779B97F4A7C15ULL +
          static_cast<std::size_t>(p.local_rank) * 0xC2B2AE3D27D4EB4FULL +
          static_cast<std::size_t>(p.task) * 0x165667B19E3779F9ULL +
          static_cast<std::size_t>(p.host_number) * 0xD6E8FEB86659FD93ULL +
          static_cast<std::size_t>(p.pid) * 0xA0761D6478BD642FULL;
  hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 29;
}

std::size_t WriterNumbers::find(const Prefix& who) {
  auto found = known_.find(who);
  if (found == known_.end() && known_.size() < kMost) {
    Writer writer(who);
    const std::size_t number = ask_(writer);
    found = known_.emplace(std::move(writer), number).first;
  }
  if (found == known_.end()) found = known_.find(Prefix{});
  if (found == known_.end()) found = known_.emplace(Writer(), ask_(Writer())).first;
  last_ = found->first.prefix();
  number_ = found->second;
  // A log of one writer needs no slots.
  if (known_.size() > 1 && last_.same_writer(who)) {
    recent_.resize(kSlots);
    Slot* slot = &recent_[place(who)];
    slot[1] = slot[0];  // the older one is dropped
    slot[0] = {&found->first, number_};
  }
  return number_;
}

}  // namespace oddrank::logs

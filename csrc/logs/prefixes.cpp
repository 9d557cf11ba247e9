// Reads launchers' prefixes, shows what each looks like, and has their table: which are tried on a
// line, and in which order.
#include "logs/prefixes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "logs/raw_text.hpp"
#include "logs/timestamps.hpp"
#include "os/encoding.hpp"

namespace oddrank::logs {
namespace {

constexpr auto kNone = std::string_view::npos;
constexpr std::size_t kLongestPrefix = 256;  // bytes of one prefix

// For each byte whether names of hosts, roles and pods hold it.
constexpr std::array<bool, 256> kNameBytes = [] {
  std::array<bool, 256> names{};
  for (std::size_t byte = 0; byte < names.size(); ++byte) {
    const auto c = static_cast<char>(byte);
    names[byte] = is_letter(c) || is_digit(c) || c == '.' || c == '_' || c == '-';
  }
  return names;
}();

constexpr bool is_name(char c) { return kNameBytes[static_cast<unsigned char>(c)]; }

// Reads a text from its front. All of its functions return false, and move nothing, where the text
// does not fit.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  std::size_t at() const { return at_; }
  bool done() const { return at_ == text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }

  bool take(char c) {
    if (peek() != c || done()) return false;
    ++at_;
    return true;
  }
  template <std::size_t kSize>
  bool take(const char (&word)[kSize]) {
    constexpr std::size_t kLength = kSize - 1;
    if (text_.size() - at_ < kLength || std::memcmp(text_.data() + at_, word, kLength) != 0) {
      return false;
    }
    at_ += kLength;
    return true;
  }
  bool take_number(std::int64_t& number, std::size_t most_digits = 10) {
    std::size_t end = at_;
    std::int64_t value = 0;
    while (end < text_.size() && is_digit(text_[end])) {
      if (end - at_ == most_digits) return false;
      value = value * 10 + (text_[end++] - '0');
    }
    if (end == at_) return false;
    at_ = end;
    number = value;
    return true;
  }
  template <class Is>
  std::string_view take_while(Is is) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && at_ - begin < kLongestPrefix && is(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // "2026-": a date begins.
  bool take_year() {
    std::int64_t year = 0;
    Cursor ahead = *this;
    if (!ahead.take_number(year, 4) || year < 1000 || !ahead.take('-')) return false;
    *this = ahead;
    return true;
  }
  std::string_view rest() const { return text_.substr(at_); }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

// The forms: each takes its own from the front of a text, notes what it says, and returns how many
// bytes it takes: 0 if the text begins otherwise. The table below says where each is tried.

constexpr std::size_t kTagTime = 24;  // bytes of the time in front of mpirun's tag

bool is_small(char c) { return is_lower(c) || is_digit(c) || c == '-' || c == '.'; }

// Returns whether a name is a word with a number: gpu0, step-12, Epoch_3. A number with a zero in
// front is a host's: gpu07.
bool is_word(std::string_view word, std::string_view number) {
  constexpr auto kWords = split<34>(
      "step epoch iter gpu cuda layer python torch stage fold loss test line phase round batch h "
      "nccl utf sha md int float fp bf v port pid conv fc device uint block param");
  if (number.size() > 1 && number[0] == '0') return false;
  while (!word.empty() && !is_letter(word.back()) && !is_digit(word.back())) word.remove_suffix(1);
  return std::any_of(kWords.begin(), kWords.end(), [word](std::string_view each) {
    return std::equal(word.begin(), word.end(), each.begin(), each.end(),
                      [](char a, char b) { return lower(a) == b; });
  });
}

// Returns whether the labels of a name are those of a host: none is a number (0.5,
// model.layers.0.mlp), or four are (an address). The last is no suffix of a source file.
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

// Returns whether a text is a number and nothing else: "conv1: 0.3" names a value, no host.
bool is_value(std::string_view text) {
  if (text.starts_with("nan") || text.starts_with("inf")) return text.size() == 3;
  return !text.empty() && text.find_first_not_of("0123456789.+-eE") == std::string_view::npos;
}

// "[rank3]:" of torch's C++ and Python messages; "[rank: 3] " of Lightning.
std::size_t torch_rank(std::string_view text, Prefix& who) {
  Cursor at(text);
  std::int64_t rank = 0;
  if (!at.take("[rank")) return 0;
  const bool lightning = at.take(": ");
  if (!at.take_number(rank, 7) || !at.take(']')) return 0;
  if (!(lightning ? at.take(' ') : at.take(':'))) return 0;
  who.rank = rank;
  return at.at();
}

// oddrank run --prefix: "[node7:rank3] ".
std::size_t oddrank_run(std::string_view text, Prefix& who) {
  Cursor at(text);
  if (!at.take('[')) return 0;
  const std::string_view host = at.take_while(is_name);
  std::int64_t rank = 0;
  if (host.empty() || !at.take(":rank") || !at.take_number(rank, 7) || !at.take("] ")) return 0;
  who.host = host;
  who.rank = rank;
  return at.at();
}

// torchrun --tee: "[default3]:", "[worker3]:", with the host as the role "[node7:3]:" or
// "[worker/node7:3]:", with both ranks "[default3|11]:", and a bare "[11]:".
std::size_t torchrun(std::string_view text, Prefix& who) {
  Cursor at(text);
  if (!at.take('[')) return 0;
  std::string_view name = at.take_while(is_name);
  if (at.take('/')) name = at.take_while(is_name);
  std::int64_t number = 0;
  if (at.take(':')) {
    if (!at.take_number(number, 7) || !at.take("]:") || name.empty()) return 0;
    who.host = name;
    who.local_rank = number;
    return at.at();
  }
  std::size_t digits = 0;
  while (digits < name.size() && is_digit(name[name.size() - digits - 1])) ++digits;
  if (digits == 0 || digits > 7) return 0;
  Cursor tail(name.substr(name.size() - digits));
  tail.take_number(number, 7);
  if (digits == name.size()) {  // an entry of torchelastic's table is "[0]:" and nothing else
    if (!at.take("]:") || at.done()) return 0;
    who.task = number;
    return at.at();
  }
  std::int64_t rank = -1;
  if (at.take('|') && !at.take_number(rank, 7)) return 0;
  if (!at.take("]:")) return 0;
  if (name.substr(0, name.size() - digits) == "rank") {
    who.rank = number;
    return at.at();
  }
  who.local_rank = number;
  if (rank >= 0) who.rank = rank;
  return at.at();
}

// mpirun --tag-output: "[1,3]<stdout>:", PRRTE: "[prterun-node7-99@1,3]<stderr>: "; horovodrun:
// "[3]<stdout>:"; SageMaker: "[1,mpirank:3,algo-1]<stdout>:".
std::size_t mpirun(std::string_view text, Prefix& who) {
  Cursor at(text);
  if (!at.take('[')) return 0;
  const bool prrte = !is_digit(at.peek());
  if (prrte) {
    at.take_while([](char c) { return is_name(c); });
    if (!at.take('@')) return 0;
  }
  std::int64_t number = 0;
  if (!at.take_number(number)) return 0;
  std::string_view host;
  if (at.take(',')) {
    const bool sagemaker = at.take("mpirank:");
    if (!at.take_number(number)) return 0;
    if (sagemaker && at.take(',')) host = at.take_while(is_name);
  }
  if (!at.take("]<std")) return 0;
  const std::string_view stream = at.take_while(is_lower);
  if (stream.empty() || !at.take('>')) return 0;
  if (at.take(':') && prrte) at.take(' ');
  if (!host.empty()) who.host = host;
  who.task = number;
  who.stream = stream[0];
  return at.at();
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
  Cursor at(text);
  if (!at.take('[')) return 0;
  const std::string_view host = at.take_while(is_name);
  std::int64_t pid = 0;
  if (host.empty() || !is_letter(host[0]) || !at.take(':') || !at.take_number(pid) ||
      !at.take("] ")) {
    return 0;
  }
  who.host = host;
  who.pid = pid;
  return at.at();
}

// kubectl logs --prefix: "[pod/train-worker-3/pytorch] ".
std::size_t kubectl(std::string_view text, Prefix& who) {
  Cursor at(text);
  if (!at.take("[pod/")) return 0;
  const std::string_view pod = at.take_while(is_name);
  if (pod.empty() || !at.take('/')) return 0;
  at.take_while(is_name);
  if (!at.take(']')) return 0;
  who.pod = pod;
  return at.at();
}

// Determined: "[2026-09-02T15:29:45.33Z] 1a2b3c4d [rank=3] || ", and without the rank.
std::size_t determined(std::string_view text, Prefix& who) {
  const std::size_t end = text.substr(0, kLongestPrefix).find("|| ");
  Cursor at(text.substr(1));
  if (end == kNone || !at.take_year()) return 0;
  const std::string_view front = text.substr(0, end);
  if (front.find("Z] ") == kNone) return 0;
  if (const std::size_t rank = front.rfind(" [rank="); rank != kNone) {
    Cursor value(front.substr(rank + 7));
    std::int64_t number = 0;
    if (value.take_number(number, 7) && value.take("] ") && value.done()) who.rank = number;
  }
  return end + 3;
}

// Colours whose escape character was lost on the way: "[36m". Whole ones are skipped everywhere.
std::size_t bare_colour(std::string_view text, Prefix& /*who*/) {
  Cursor at(text);
  if (!at.take('[') || !is_digit(at.peek())) return 0;
  at.take_while([](char c) { return is_digit(c) || c == ';'; });
  return at.take('m') ? at.at() : 0;
}

// Ray: "(Worker[rank=9] pid=3098846, ip=10.65.5.217)", "(pid=12)"; vLLM: "(VllmWorker rank=3
// pid=12)", whose rank is that in its engine, of which a job may have several.
std::size_t ray(std::string_view text, Prefix& who) {
  text = text.substr(0, kLongestPrefix);
  std::size_t end = text.find(')');
  // "(Worker(train-1) pid=12)": a name may have brackets, too.
  if (const std::size_t inner = text.find('(', 1); inner < end) end = text.find(')', end + 1);
  if (end == kNone) return 0;
  const std::string_view inside = text.substr(0, end);
  const std::size_t pid_at = inside.starts_with("(pid=") ? 1 : inside.find(" pid=") + 1;
  if (pid_at == 0) return 0;
  Cursor pid(inside.substr(pid_at + 4));
  std::int64_t number = 0;
  if (!pid.take_number(number)) return 0;
  who.pid = number;
  if (const std::size_t ip = inside.find("ip=", pid_at); ip != kNone) {
    Cursor address(inside.substr(ip + 3));
    who.host = address.take_while([](char c) { return is_name(c) || c == ':'; });
  }
  const std::size_t rank = inside.substr(0, pid_at).find("rank=");
  if (rank != kNone && !inside.starts_with("(VllmWorker ")) {
    Cursor value(inside.substr(rank + 5));
    if (value.take_number(number, 7)) who.rank = number;
  }
  return end + 1;
}

// srun --label, flux: "12: ", padded with spaces on the left.
std::size_t srun(std::string_view text, Prefix& who) {
  Cursor at(text);
  if (at.take_while([](char c) { return c == ' '; }).size() > 5) return 0;
  std::int64_t task = 0;
  if (!at.take_number(task, 7) || !at.take(':') || !(at.take(' ') || at.done())) return 0;
  who.task = task;
  return at.at();
}

// kubectl --timestamps, docker, GitHub: "2026-09-02T15:29:45.3372976Z "; without a zone only in
// front of "[rankN]:", since lines of logging begin so, too. Only skipped.
std::size_t stamp(std::string_view text, Prefix& /*who*/) {
  // Lines of logging begin so, too, and are many: what is behind the time tells most of them.
  std::size_t end = 19;
  while (end < text.size() && (is_digit(text[end]) || text[end] == '.' || text[end] == ',')) ++end;
  if (text.size() < end + 2 || (text[end] == ' ' && text[end + 1] != '[')) return 0;
  end = 0;
  const auto time = take_iso(text, end);
  if (!time || text[4] != '-' || text[10] == '_' || !text.substr(end).starts_with(' ')) return 0;
  const bool zone = time->clock == Timestamp::Clock::utc && text.find(' ', 11) == end;
  return zone || text.substr(end).starts_with(" [rank") ? end + 1 : 0;
}

// A host in front: pdsh "node7: ", templates of torchrun "node7:3: ", NCCL "node7:99:101 [3] ".
std::size_t host(std::string_view text, Prefix& who) {
  Cursor at(text);
  const std::string_view name = at.take_while(is_name);
  if (name.size() < 2 || !at.take(':')) return 0;
  std::int64_t first = 0;
  if (at.take_number(first)) {
    std::int64_t second = 0;
    if (!at.take(':')) return 0;
    if (at.take_number(second)) {  // host:pid:tid [device]; not the time 10:42:28 [0]
      const bool is_date = Cursor(name).take_year();
      if (is_date || std::all_of(name.begin(), name.end(), is_digit)) return 0;
      if (!at.take(" [") || !at.take_number(second, 4) || !at.take("] ")) return 0;
      who.host = name;
      who.pid = first;
      return at.at();
    }
    if (first > 9'999'999 || !at.take(' ') || !may_be_host(name)) return 0;
    who.host = name;
    who.host_number = first;
    return at.at();
  }
  if (!at.take(' ')) return 0;
  if (name.starts_with("rank")) {
    Cursor rank(name.substr(4));
    std::int64_t number = 0;
    if (!rank.take_number(number, 7) || !rank.done()) return 0;
    who.rank = number;
    return at.at();
  }
  if (!may_be_host(name) || is_value(at.rest())) return 0;
  who.host = name;
  return at.at();
}

// syslog: "Apr 19 10:42:28 node7 train[123]: ". The pid is that of a service, which may be
// torchrun.
std::size_t syslog(std::string_view text, Prefix& who) {
  Cursor at(text);
  std::int64_t number = 0;
  if (at.take_while(is_letter).size() != 3 || !at.take(' ')) return 0;
  at.take(' ');
  if (!at.take_number(number, 2) || !at.take(' ') || !at.take_number(number, 2) || !at.take(':') ||
      !at.take_number(number, 2) || !at.take(':') || !at.take_number(number, 2) || !at.take(' ')) {
    return 0;
  }
  const std::string_view name = at.take_while(is_name);
  if (name.empty() || !at.take(' ')) return 0;
  if (at.take_while([](char c) { return is_name(c) || c == '/'; }).empty()) return 0;
  if (at.take('[') && (!at.take_number(number) || !at.take(']'))) return 0;
  if (!at.take(": ")) return 0;
  who.host = name;
  return at.at();
}

// docker compose: "worker-1  | ".
std::size_t compose(std::string_view text, Prefix& who) {
  Cursor at(text);
  const std::string_view name = at.take_while(is_name);
  const std::size_t letters = name.find_last_not_of("0123456789");
  if (letters == kNone || letters + 1 == name.size() || name[letters] != '-') return 0;
  if (at.take_while([](char c) { return c == ' '; }).empty() || !at.take("| ")) return 0;
  who.pod = name;
  return at.at();
}

// accelerate test and other parents that print a child's output: "stderr: "; logs of Kubernetes'
// nodes, behind a time: "stderr F " (F: a full line, P: a part of one).
std::size_t stream(std::string_view text, Prefix& /*who*/) {
  Cursor at(text);
  if (!at.take("stderr") && !at.take("stdout")) return 0;
  return at.take(": ") || at.take(" F ") || at.take(" P ") ? at.at() : 0;
}

constexpr std::size_t kNested = 8;      // prefixes of one line
constexpr std::size_t kBarLimit = 512;  // a progress bar ends before this byte

using Parse = std::size_t (*)(std::string_view text, Prefix& who);

struct Row {
  char first;   // '0': any digit; 'a': any letter; else this very character
  char second;  // the same of the character behind a bracket; '.': any
  // What may stand behind the first run of letters and digits, a bracket before it apart: most
  // lines are told from all rows by these three characters. Empty: anything.
  std::string_view after;
  Parse parse;
};
constexpr Row kRows[] = {
    {'[', 'r', "]:", torch_rank}, {'[', '0', ",]", mpirun},     {'[', 'a', "@", mpirun},
    {'[', 'p', "/", kubectl},     {'[', '.', "]:/|", torchrun}, {'[', 'a', ":", mpi_message},
    {'[', '.', ":", oddrank_run}, {'[', '0', ":", determined},  {'[', '0', "", bare_colour},
    {'(', '.', "", ray},          {'0', '.', ":", srun},        {' ', '.', "", srun},
    {'0', '.', ": ", stamp},      {'0', '.', ":", host},        {'a', '.', ": ", stream},
    {'a', '.', ":", host},        {'a', '.', " ", syslog},      {'a', '.', " ", compose},
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
    // One space belongs to the prefix; more of them are the text's own. Behind mpirun's tag all
    // are.
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
    Cursor at(text.substr(1)), named = at;
    if ((at.take("rank") || at.take("default")) && !at.take_while(is_digit).empty() &&
        at.take("]:")) {
      return from;
    }
    named.take_while(is_name);
    if (named.take(":rank") && !named.take_while(is_digit).empty() && named.take("] ")) return from;
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
    slot[1] = slot[0];  // the older one of two goes
    slot[0] = {&found->first, number_};
  }
  return number_;
}

}  // namespace oddrank::logs

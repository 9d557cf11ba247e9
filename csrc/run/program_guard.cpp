// oddrank-guard: the program that `oddrank run` starts beside each rank. It watches that process,
// reports changes to the job's root, and ends soon after it. It prints nothing, but for one line
// about wrong options.
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "control/rendezvous.hpp"
#include "os/clock.hpp"
#include "os/error.hpp"
#include "os/fd.hpp"
#include "os/proc.hpp"
#include "run/record_watch.hpp"
#include "run/worker_snapshot.hpp"
#include "trace/read/snapshot.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::run {
namespace {

// Values of /proc and the cgroup on a process, without its help. Unreadable values count as zero or
// empty.

constexpr std::size_t kMostProcesses = 1 << 16;
constexpr std::size_t kMostText = std::size_t{1} << 18;

std::string read_text(const std::string& path) {
  std::string text;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while (file && text.size() < kMostText &&
         (got = ::read(file.get(), part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::string proc(pid_t pid, const std::string& name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

// Returns the number after `name` at the begin of a line of "name value" or "name: value".
std::optional<std::uint64_t> value_after(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    if (line.starts_with(':')) line.remove_prefix(1);
    if (!line.starts_with(' ')) continue;
    line.remove_prefix(1);
    std::uint64_t value = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), value).ec == std::errc{}) {
      return value;
    }
  }
  return std::nullopt;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  std::error_code failed;
  for (std::filesystem::directory_iterator at("/proc", failed), end;
       !failed && at != end && pids.size() < kMostProcesses; at.increment(failed)) {
    const std::string name = at->path().filename();
    const char* const last = name.data() + name.size();
    pid_t pid = 0;
    if (std::from_chars(name.data(), last, pid).ptr == last) pids.push_back(pid);
  }
  return pids;
}

std::uint64_t ns_of(std::uint64_t ticks) noexcept {
  static const auto hertz = static_cast<std::uint64_t>(std::max(::sysconf(_SC_CLK_TCK), 1L));
  return ticks * (1'000'000'000 / hertz);
}

// Returns the process, if it lives, and its descendants. Reads every process of the host: not each
// kernel has the lists of children in /proc.
std::vector<std::pair<pid_t, ProcStat>> family_of(pid_t pid) {
  std::multimap<pid_t, std::pair<pid_t, ProcStat>> children;
  for (const pid_t each : all_processes()) {
    const ProcStat stat = read_stat(each);
    if (stat.state != 0 && each != pid) children.insert({stat.parent, {each, stat}});
  }
  std::vector<std::pair<pid_t, ProcStat>> family;
  const ProcStat own = read_stat(pid);
  if (own.state != 0) family.emplace_back(pid, own);
  for (std::size_t i = 0; i < family.size(); ++i) {
    const auto [first, last] = children.equal_range(family[i].first);
    for (auto child = first; child != last; ++child) family.push_back(child->second);
    children.erase(first, last);  // a pid that was used again can make no circle
  }
  return family;
}

// Returns for how long the main thread waited for a core; 0 if the kernel does not count it.
std::uint64_t starved_ns_of(pid_t pid) {
  const std::string text = read_text(proc(pid, "schedstat"));  // nanoseconds: ran, waited; turns
  const char* const end = text.data() + text.size();
  const char* const waited = std::find(text.data(), end, ' ');
  std::uint64_t ns = 0;
  if (waited != end) std::from_chars(waited + 1, end, ns);
  return ns;
}

std::uint64_t io_bytes_of(pid_t pid) {
  const std::string text = read_text(proc(pid, "io"));
  std::uint64_t sum = 0;
  for (const std::string_view name : {"rchar", "wchar", "read_bytes", "write_bytes"}) {
    sum += value_after(text, name).value_or(0);
  }
  return sum;
}

// The files of a cgroup that may count kills, best first. In a container the path may be the
// host's: then the container's own cgroup is at the top.
std::vector<std::string> files_with_kills(pid_t pid) {
  std::vector<std::string> files;
  const std::string text = read_text(proc(pid, "cgroup"));
  for (std::size_t at = 0; at < text.size();) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers == "memory") {
      files.push_back("/sys/fs/cgroup/memory" + path + "/memory.oom_control");
      files.emplace_back("/sys/fs/cgroup/memory/memory.oom_control");
    } else if (controllers.empty()) {
      files.push_back("/sys/fs/cgroup" + path + "/memory.events");
      files.emplace_back("/sys/fs/cgroup/memory.events");
      files.push_back("/sys/fs/cgroup/unified" + path + "/memory.events");
    }
  }
  return files;
}

// Returns the living descendants of a process, and when they started.
std::map<pid_t, std::uint64_t> descendants_of(pid_t pid) {
  std::map<pid_t, std::uint64_t> found;
  for (const auto& [each, stat] : family_of(pid)) {
    if (each != pid) found.emplace(each, stat.start_time);
  }
  return found;
}

struct Usage {
  // CPU time, in steps of a clock tick (10 ms), and the time for which main threads could run and
  // got no core: on a busy host a process at work has little of the former.
  std::uint64_t cpu_ns = 0;
  std::uint64_t io_bytes = 0;  // passed to read() and write(), and read from and written to disks
};

// Returns the sums of a process and its descendants. CPU time of those that have ended counts once
// their parent has waited for them. Reads /proc of each process of the host.
Usage usage_of(pid_t pid) {
  Usage usage;
  for (const auto& [each, stat] : family_of(pid)) {
    usage.cpu_ns += ns_of(stat.cpu_ticks + stat.child_ticks) + starved_ns_of(each);
    usage.io_bytes += io_bytes_of(each);
  }
  return usage;
}

struct TaskLook {
  char state = 0;  // letter of /proc/PID/stat; 0: gone
  std::uint64_t cpu_ns = 0;
};

// Samples these threads of a process, and the main one.
std::map<std::uint32_t, TaskLook> look_at_threads(pid_t pid,
                                                  const std::vector<std::uint32_t>& tids) {
  std::map<std::uint32_t, TaskLook> looks;
  const auto look = [&](std::uint32_t tid) {
    const ProcStat stat = read_task_stat(pid, static_cast<pid_t>(tid));
    looks[tid] = {stat.state, ns_of(stat.cpu_ticks)};
  };
  look(static_cast<std::uint32_t>(pid));
  for (const std::uint32_t tid : tids) look(tid);
  return looks;
}

// Counts the processes that the kernel killed in a process's cgroup because memory was short.
class OomKills {
 public:
  explicit OomKills(pid_t pid) {
    for (const std::string& file : files_with_kills(pid)) {
      if (const auto count = value_after(read_text(file), "oom_kill")) {
        file_ = file;
        first_ = last_ = *count;
        return;
      }
    }
  }

  // Returns the number since the constructor. It stays once the cgroup is gone.
  std::uint64_t count() {
    if (!file_.empty()) {
      last_ = std::max(last_, value_after(read_text(file_), "oom_kill").value_or(0));
    }
    return last_ - first_;
  }

 private:
  std::string file_;  // memory.events of cgroup 2, memory.oom_control of cgroup 1; "": none
  std::uint64_t first_ = 0, last_ = 0;
};

using control::FrameKind;
using control::Liveness;

constexpr std::int64_t kLookNs = 1'000 * kMs;
// A longer turn of the loop means that this process was paused.
constexpr std::int64_t kLongestTurnNs = 2'500 * kMs;
// Without a root yet: how often it is looked for, at first and later.
constexpr std::int64_t kSeekNs = 50 * kMs, kSeekLaterNs = kLookNs, kSeekSoonNs = 30'000 * kMs;
// Most time between the two samples of a snapshot's threads.
constexpr std::int64_t kMostLookMs = 10'000;
// After the worker's death, for the root's questions; for a root that it has not found yet.
// The judge asks for evidence last: on a busy node, long after the death.
constexpr std::int64_t kLingerNs = 15'000 * kMs, kUnheardNs = 60'000 * kMs;
// A collector has a deadline of its own, which is shorter.
constexpr std::int64_t kCollectNs = 60'000 * kMs;
// Between SIGTERM and SIGKILL.
constexpr std::int64_t kGraceNs = 5'000 * kMs;

// In larger jobs, all ranks' workers would be too much for the root.
constexpr std::int32_t kMostWithWorkers = 1024;

// The parameters of a snapshot are a number of milliseconds.
std::int64_t look_ns(const std::string& parameters) {
  std::int64_t milliseconds = 0;
  const char* const end = parameters.data() + parameters.size();
  std::from_chars(parameters.data(), end, milliseconds);
  return std::clamp<std::int64_t>(milliseconds, 0, kMostLookMs) * kMs;
}

// Returns whether a list like 0,8,16 has the number.
bool has(std::string_view list, std::int32_t number) {
  const std::string word = std::to_string(number);
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

// Options that `oddrank run` packs for the guard: see python/oddrank/run/start.py.
struct WatchOptions : control::GuardIdentity {
  std::int32_t pid = 0;
  std::int32_t quiet_ms = 0;         // a worker that moves not for so long is quiet
  std::vector<std::string> records;  // where the worker's record may appear
  // A command that saves this node's evidence, and prints its result; empty: none.
  std::vector<std::string> collector;

  void fields(auto& io) {
    io(pid, rank, world, local_rank, local_world, node, quiet_ms, host, launcher, address,
       rendezvous_file, fetcher, records, collector);
  }
  bool valid() const {
    return pid > 0 && rank >= 0 && world > 0 && local_rank >= 0 && local_world > 0 && node >= 0 &&
           quiet_ms > 0;
  }
};

// Sends a State when the worker's life, stage, parent or count of memory kills changes, and as an
// answer to REPORT. Stages of the root:
// - "snapshot": sends a WorkerSnapshot, also once the worker is dead. Its parameters: the
//   milliseconds between two samples of the threads.
// - "collect": sends the collector's output, if its rank is among the parameters' ranks: 0,8 and,
//   after a space, the collector's last argument.
// - "kill": ends the worker, by SIGTERM, and by SIGKILL 5 s later; then its descendants.
// - "end", or an END: only waits for the worker's end from now on.
// Sleeps but for a check a second.
class Watcher final : control::GuardBase {
 public:
  Watcher(const WatchOptions& options, control::ProcessWatch worker)
      : GuardBase(options, std::move(worker), kLongestTurnNs),
        options_(options),
        record_(options_.records, worker_.pid(), worker_.start_time(), options_.quiet_ms * kMs),
        oom_kills_(worker_.pid()),
        began_ns_(monotonic_ns()) {
    if (!options_.address.empty()) dial(options_.address);
  }
  // Returns once the worker has been dead for 15 s (60 s if it has found no root; at once if the
  // root wants no more), or the root is gone; later while the collector runs. A root that is silent
  // is sought again.
  void run() {
    for (std::int64_t now = began_ns_; !is_done(now); now = monotonic_ns()) {
      const bool has_died =
          sleep(std::max<std::int64_t>(sleep_ns(now), 0), {{collector_.fd(), POLLIN, 0}});
      step(monotonic_ns(), has_died);
    }
  }

 private:
  // A snapshot that the root has asked for.
  struct Asked {
    std::uint32_t stage = 0;
    bool once = false;  // only one sample of the threads: no CPU times
    std::int64_t due_ns = 0;
    std::map<std::uint32_t, TaskLook> before;
  };

  void step(std::int64_t now, bool has_died) {
    const bool blind = worker_.fd() < 0;
    if (!is_dead() && (has_died || blind || now - looked_ns_ >= kLookNs)) look(now);
    if (kill_at_ns_ != 0 && now >= kill_at_ns_ && !is_dead()) {
      family_.merge(descendants_of(worker_.pid()));
      worker_.kill();
      kill_at_ns_ = now + kGraceNs;
    }
    if (kill_at_ns_ != 0 && is_dead()) kill_family();
    while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;  // the fetcher, the collector
    const auto collected = collector_.take(now);
    if (alone_) return;
    seek(now, INT64_MAX);
    if (collected) send_result(collects_, *collected);
    link_.tick(now);
    const bool was_up = link_.up();
    const std::vector<control::Frame> frames = link_.work(now);
    if (link_.up() && !was_up) {
      welcomed_ = true;
      silent_ = false;
      fetch_.stop();  // the address has come by another way
      report(now, 0);
    }
    for (const control::Frame& frame : frames) {
      if (!alone_) hear(frame, now);
    }
    if (alone_) return;
    if (asked_ && (now >= asked_->due_ns || is_dead())) send_snapshot();
    ping(now);
    if (link_.lost() && !welcomed_ && options_.address.empty()) forget_root();
    silent_ = silent_ || link_.parting();
    if (link_.lost() && silent_) seek_again();
  }
  std::int64_t sleep_ns(std::int64_t now) const {
    std::int64_t next = looked_ns_ + kLookNs;
    if (is_dead()) next = std::min(now + kLookNs, lingers_until());
    if (!alone_ && !link_.up()) {
      const bool often = is_dead() || now - began_ns_ < kSeekSoonNs;
      next = std::min(next, now + (often ? kSeekNs : kSeekLaterNs));
    }
    if (worker_.fd() < 0)
      next = std::min(next, now + kSeekNs);  // an old kernel: the check sees a death
    if (asked_) next = std::min(next, asked_->due_ns);
    if (kill_at_ns_ != 0 && !is_dead()) next = std::min(next, kill_at_ns_);
    return next - now;
  }
  std::int64_t lingers_until() const noexcept {
    return changed_ns_ + (welcomed_ ? kLingerNs : kUnheardNs);
  }
  bool is_done(std::int64_t now) const {
    if (refused_) return true;
    if (collector_.running()) return false;
    if (is_dead() && (alone_ || now >= lingers_until())) return true;
    return link_.lost();
  }
  void look(std::int64_t now) {
    const bool changed = look_at_worker(now);
    record_.look(now);
    kills_ = oom_kills_.count();
    if (changed || record_.stage() != reported_.stage || kills_ != reported_.oom_kills) {
      report(now, 0);
    }
  }
  bool dial(const std::string& address) override {
    if (address.empty() || address == forgotten_) return false;
    constexpr std::uint32_t kNoDeadline = UINT32_MAX;
    control::Hello hello = identity_.hello(worker_, launcher_, kNoDeadline);
    // No address: a fetcher failed, or another version left the file.
    if (!link_.dial(address, std::move(hello), true)) return false;
    dialed_ = address;
    return true;
  }
  void hear(const control::Frame& frame, std::int64_t now) {
    if (frame.kind == FrameKind::kEnd) {
      const bool refused = !link_.up();  // an END without a welcome
      if (refused && options_.address.empty()) {
        forget_root();
        return;
      }
      refused_ = refused;
      go_alone();
    } else if (frame.kind == FrameKind::kReport) {
      if (!is_dead()) look(now);
      report(now, control::Unpacker(frame.payload).next<std::uint32_t>());
    } else if (frame.kind == FrameKind::kGo) {
      const auto go = control::unpack<control::Go>(frame.payload);
      if (go && go->stage == "snapshot") begin_snapshot(*go, now);
      if (go && go->stage == "collect") collect(*go, now);
      if (go && go->stage == "kill" && kill_at_ns_ == 0) {
        family_ = descendants_of(worker_.pid());
        worker_.kill(SIGTERM);
        kill_at_ns_ = now + kGraceNs;
      }
      if (go && go->stage == "end") go_alone();
    }
  }
  // The worker's children outlive it: workers that load data, ranks of a script that starts them
  // itself.
  void kill_family() {
    for (const auto& [pid, started] : std::exchange(family_, {})) {
      if (read_stat(pid).start_time == started) ::kill(pid, SIGKILL);
    }
  }
  void go_alone() {
    alone_ = true;
    asked_.reset();
    link_ = control::Link(kLongestTurnNs);
  }
  // The root of an earlier run of the same launcher, whose address was still in the file: this
  // run's will take its place.
  void forget_root() {
    forgotten_ = dialed_;
    link_ = control::Link(kLongestTurnNs);
  }
  // The network may be cut for long, and the root may take this guard for connected at first: both
  // look like a root that is gone. The search ends with the worker.
  void seek_again() {
    asked_.reset();
    link_ = control::Link(kLongestTurnNs);
    dial(dialed_);
  }
  control::State state(std::int64_t now) const override {
    control::State state = process_state(now);
    // A zombie's threads may take long to end: drivers free the memory of a GPU.
    const bool has_ended = is_dead() || state.life == Liveness::kZombie;
    if (has_ended && state.signal == 0 && state.exit_code < 0)
      state.exit_code = record_.exit_code();
    state.stage = record_.stage();
    state.step = record_.step();
    state.progress = record_.progress();
    const std::int64_t quiet = record_.quiet_ns(now);
    state.quiet_ms = quiet < 0 ? -1 : quiet / kMs;
    state.oom_kills = kills_;
    return state;
  }
  void send_result(std::uint32_t stage, const std::string& result) {
    link_.send(FrameKind::kResult, control::packed(stage) + result);
  }
  void collect(const control::Go& go, std::int64_t now) {
    const std::size_t end = std::min(go.parameters.find(' '), go.parameters.size());
    if (!has(std::string_view(go.parameters).substr(0, end), options_.rank)) return;
    collects_ = go.stage_number;
    if (!collector_.running()) {
      std::vector<std::string> command = options_.collector;
      command.push_back(go.parameters.substr(std::min(end + 1, go.parameters.size())));
      collector_.start(command, now + kCollectNs);
    }
    if (!collector_.running()) send_result(collects_, "");
  }
  void begin_snapshot(const control::Go& go, std::int64_t now) {
    if (!is_dead()) look(now);
    const std::int64_t look = look_ns(go.parameters);
    asked_ = Asked{go.stage_number, look == 0, now + look, {}};
    if (!is_dead()) asked_->before = look_at_threads(worker_.pid(), threads());
  }
  void send_snapshot() {
    WorkerSnapshot snapshot;
    const pid_t pid = worker_.pid();
    if (!is_dead()) {
      const auto after = asked_->once ? asked_->before : look_at_threads(pid, threads());
      for (const auto& [tid, before] : asked_->before) {
        const auto found = after.find(tid);
        if (found == after.end() || found->second.state == 0) continue;
        const std::uint64_t end = std::max(found->second.cpu_ns, before.cpu_ns);
        snapshot.threads.push_back({tid, std::string(1, found->second.state),
                                    wchan_of(static_cast<pid_t>(tid)), end - before.cpu_ns});
      }
      const Usage usage = usage_of(pid);
      snapshot.cpu_ns = usage.cpu_ns;
      snapshot.io_bytes = usage.io_bytes;
      if (!asked_->once && options_.world > 1 && options_.world <= kMostWithWorkers) {
        snapshot.workers = records_of_children(options_.records, pid, 0, kMostWorkersOfOne);
      }
    }
    if (options_.world == 1) {  // it may have started its ranks itself: those are all that there is
      snapshot.workers =
          records_of_children(options_.records, pid, worker_.start_time(), kMostWorkers);
    }
    const ProcStat stat = read_stat(pid);
    if (stat.state != 0 && stat.start_time == worker_.start_time()) {
      snapshot.letter = std::string(1, stat.state);
      // A main thread may end before the process does.
      if (stat.is_zombie() && is_dead()) snapshot.wait_status = stat.wait_status;
    }
    snapshot.start_time = worker_.start_time();
    snapshot.oom_kills = kills_ = oom_kills_.count();
    if (record_.file() != nullptr) {
      try {
        snapshot.record = trace::slim_record(*record_.file());
      } catch (const Error&) {
        snapshot.record.clear();  // cut
      }
    }
    snapshot.realtime_ns = clock_ns(CLOCK_REALTIME);
    send_result(asked_->stage, control::pack(snapshot));
    asked_.reset();
    ::malloc_trim(0);  // the dictionary of the record
  }
  // Returns the live threads of the record.
  std::vector<std::uint32_t> threads() const {
    std::set<std::uint32_t> tids;
    if (record_.file() == nullptr) return {};
    try {
      for (const trace::Thread& thread : trace::read_threads(*record_.file(), 1).list) {
        if (thread.state == trace::ThreadState::kLive) tids.insert(thread.tid);
      }
    } catch (const Error&) {
      return {};  // cut
    }
    return {tids.begin(), tids.end()};
  }

  WatchOptions options_;
  RecordWatch record_;
  OomKills oom_kills_;
  control::Command collector_;
  std::uint32_t collects_ = 0;             // the stage whose result the collector's output is
  std::int64_t kill_at_ns_ = 0;            // 0 until the root asks for the worker's end
  std::map<pid_t, std::uint64_t> family_;  // the worker's descendants at the order to end
  std::int64_t began_ns_;
  std::uint64_t kills_ = 0;
  bool alone_ = false;    // the root wants no more
  bool refused_ = false;  // it has refused this guard
  bool welcomed_ = false;
  bool silent_ = false;             // the root has welcomed it, and is silent now
  std::string dialed_, forgotten_;  // addresses: the present root's, and one of another run's root
  std::optional<Asked> asked_;
};

constexpr int kUsage = 2;
constexpr int kFailed = 1;
constexpr int kMostWaitMs = 60'000;  // for the next bytes of the options

// Reads the options from stdin: they hold the job's secret, and other users may read a command
// line. Another child of that process may keep the pipe open: the end of the options is enough.
WatchOptions read_options() {
  std::string bytes;
  std::array<char, 4096> some{};
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (::poll(&input, 1, kMostWaitMs) > 0) {
    const ssize_t got = ::read(STDIN_FILENO, some.data(), some.size());
    if (got <= 0) break;
    bytes.append(some.data(), static_cast<std::size_t>(got));
    if (auto options = control::unpack<WatchOptions>(bytes)) return std::move(*options);
  }
  throw Error("no valid options on stdin: `oddrank run` starts this program");
}

// Leaves the process that started this one, its session, folder, descriptors and signals.
void detach(int kept) {
  const pid_t child = ::fork();
  if (child < 0) throw_errno("fork");
  if (child > 0) ::_exit(0);
  ::setsid();
  [[maybe_unused]] const int moved = ::chdir("/");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; null >= 0 && fd <= 2; ++fd) ::dup2(null, fd);
  control::close_descriptors_but(kept, -1);
  control::reset_signals();
}

int guard() {
  // No descriptor of ours may be 0 to 2: those are replaced later.
  for (int fd = 0; fd >= 0 && fd <= 2;) fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  try {
    const WatchOptions options = read_options();
    // Before the fork: the process that started this one waits for it, so the worker's pid is still
    // the worker's.
    control::ProcessWatch worker(options.pid);
    if (worker.start_time() == 0) {
      throw Error("there is no process " + std::to_string(options.pid));
    }
    detach(worker.fd());
    try {
      Watcher(options, std::move(worker)).run();
    } catch (const std::exception&) {
      ::_exit(kFailed);  // no process reads a message
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "oddrank-guard: %s\n", error.what());
    return kUsage;
  }
  return 0;
}

}  // namespace
}  // namespace oddrank::run

int main() { return oddrank::run::guard(); }

// The guard of `oddrank run`: a process that watches one rank, tells the root what changes, and
// ends nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/command.hpp"
#include "control/link.hpp"
#include "control/messages.hpp"
#include "control/process.hpp"
#include "control/rendezvous.hpp"
#include "run/kernel_facts.hpp"
#include "run/record_watch.hpp"

namespace oddrank::run {

// What `oddrank run` packs for the guard: see python/oddrank/run/start.py.
struct WatchOptions : control::GuardIdentity {
  std::int32_t pid = 0;
  std::int32_t quiet_ms = 0;         // a worker that moves not for so long is quiet
  std::vector<std::string> records;  // where the worker's record may appear
  // A command that saves this node's evidence, and prints what it did; empty: none.
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
//   milliseconds between two looks at the threads.
// - "collect": sends what the collector prints, if it is one of the ranks of the parameters: 0,8
//   and, after a space, the collector's last argument.
// - "kill": ends the worker, by SIGTERM, and by SIGKILL 5 s later; then what it had started.
// - "end", or an END: only waits for the worker's end from now on.
// Sleeps but for a look a second.
class Watcher {
 public:
  Watcher(WatchOptions options, control::ProcessWatch worker);
  // Returns once the worker has been dead for 4.5 s (at once if the root wants no more), or the
  // root is gone; later while the collector runs. A root that is silent is sought again.
  void run();

 private:
  // A snapshot that the root has asked for.
  struct Asked {
    std::uint32_t stage = 0;
    bool once = false;  // only one look at the threads: no CPU times
    std::int64_t due_ns = 0;
    std::map<std::uint32_t, TaskLook> before;
  };

  void step(std::int64_t now, bool has_died);
  std::int64_t sleep_ns(std::int64_t now) const;
  bool is_done(std::int64_t now) const;
  void look(std::int64_t now);
  void look_for_root(std::int64_t now);
  bool dial(const std::string& address);
  void hear(const control::Frame& frame, std::int64_t now);
  void kill_family();
  void go_alone();
  void forget_root();
  void seek_again();
  control::State state(std::int64_t now) const;
  void report(std::int64_t now, std::uint32_t question);
  void send_result(std::uint32_t stage, const std::string& result);
  void collect(const control::Go& go, std::int64_t now);
  void begin_snapshot(const control::Go& go, std::int64_t now);
  void send_snapshot();
  std::vector<std::uint32_t> threads() const;
  bool is_dead() const noexcept { return worker_.last().life == control::Liveness::kDead; }

  WatchOptions options_;
  control::ProcessWatch worker_;
  RecordWatch record_;
  OomKills oom_kills_;
  control::Link link_;
  control::Rendezvous rendezvous_;
  control::Command collector_;
  std::uint32_t collects_ = 0;             // the stage whose result the collector's output is
  std::int64_t kill_at_ns_ = 0;            // 0: the root has not asked for the worker's end
  std::map<pid_t, std::uint64_t> family_;  // the worker's descendants when it was told to end
  pid_t launcher_;                         // its parent at the start
  std::int64_t began_ns_;
  std::int64_t looked_ns_ = 0;
  std::int64_t pinged_ns_ = 0;
  std::int64_t changed_ns_ = 0;  // when the worker's life changed
  std::uint64_t kills_ = 0;
  bool orphaned_ = false;
  bool alone_ = false;    // the root wants no more
  bool refused_ = false;  // it has refused this guard
  bool welcomed_ = false;
  bool silent_ = false;             // the root has welcomed it, and is silent now
  std::string dialed_, forgotten_;  // addresses: of the present root, of one that was another run's
  control::State reported_;
  std::optional<Asked> asked_;
};

}  // namespace oddrank::run

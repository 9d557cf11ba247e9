// The guard of `oddrank run`: a process that watches one rank, tells the root what changes, and
// ends nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/link.hpp"
#include "control/process.hpp"
#include "control/rendezvous.hpp"
#include "run/kernel_facts.hpp"
#include "run/record_watch.hpp"

namespace oddrank::run {

struct WatchOptions {
  std::int32_t rank = 0, world = 1, local_rank = 0, local_world = 1, node = 0;
  std::string host;
  std::string launcher;              // its name; empty: none
  std::vector<std::string> records;  // where the worker's record may appear
  std::string address;               // the root's; empty: the next two bring it
  std::string rendezvous_file;       // a file where it may appear; empty: none
  std::vector<std::string> fetcher;  // a command that prints it; empty: none
  std::int64_t quiet_ns = 5'000'000'000;
};

// Sends a State when the worker's life, stage, parent or count of memory kills changes, and as an
// answer to REPORT; a WorkerSnapshot as the result of each stage "snapshot" (its parameters: the
// milliseconds between two looks at the threads), also once the worker is dead. After a stage
// "end", or an END, it only waits for the worker's end. Sleeps but for a look a second.
class Watcher {
 public:
  Watcher(WatchOptions options, control::ProcessWatch worker);
  // Returns once the worker has been dead for 4.5 s (at once if the root wants no more), or the
  // root is gone.
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
  void go_alone();
  control::State state(std::int64_t now) const;
  void report(std::int64_t now, std::uint32_t question);
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
  pid_t launcher_;  // the worker's parent at the start
  std::int64_t began_ns_;
  std::int64_t looked_ns_ = 0;
  std::int64_t pinged_ns_ = 0;
  std::int64_t changed_ns_ = 0;  // when the worker's life changed
  std::int64_t lost_ns_ = 0;     // when the root was lost; 0: it is not
  std::uint64_t kills_ = 0;
  bool orphaned_ = false;
  bool alone_ = false;    // the root wants no more
  bool refused_ = false;  // it has refused this guard
  control::State reported_;
  std::optional<Asked> asked_;
};

}  // namespace oddrank::run

// The root's server: one thread that holds a connection to every guard.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "control/net.hpp"
#include "control/ranks.hpp"

namespace oddrank::control {

struct HubOptions {
  int world = 1;
  std::string token;
  std::string host;  // of this process, for the roster and for messages
  std::int64_t deadline_ns = 0;
  std::uint32_t heartbeat_ms = 0;  // 0: by the size of the world
  std::uint32_t silence_ms = 0;    // 0: by the time until the deadline
};

// A process of this job that was turned away: its rank was taken, or it is of another world.
struct OddClaim {
  int rank = -1;  // that it says it is
  bool other_world = false;
  std::string text;
};

// What a caller sees besides the ranks.
struct HubNotes {
  std::string limits;         // why ranks may be unable to connect; "" if nothing is known
  std::vector<OddClaim> odd;  // at most 16
  std::uint64_t foreign = 0;  // connections that were not of this job
  std::string reached_at;     // this host's address for other hosts; "" while none has come
};

// The constructor starts the thread, the destructor stops it. Connections that do not say the
// token, or break the rules, are dropped without disturbing anybody. All methods are thread-safe.
class Hub {
 public:
  // Raises the soft limit of open files to the hard one.
  Hub(Fd listener, HubOptions options);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  ~Hub();

  // Begins stage `number`; GO goes to all but in stage 0 (join).
  void begin(std::uint32_t number, const std::string& stage, const std::string& parameters,
             std::int64_t deadline_ns);
  // Waits until the stage is over or `until_ns`; kOpen if it is not over.
  Reason wait(std::int64_t until_ns);
  // Asks every guard for its worker's state now and waits for the answers, at most `until_ns`.
  void refresh(std::int64_t until_ns);
  // Tells the lowest guard of each node who its neighbours are.
  void send_roster();
  // Sends END and waits, at most `until_ns`, until it has left.
  void end(int exit_code, std::int64_t until_ns);

  std::vector<RankRecord> snapshot();
  int result_count();
  // Until the earliest deadline of any process of the job.
  std::int64_t remaining_ns();
  HubNotes notes();

 private:
  struct Connection {
    Channel channel;
    int rank = -1;  // -1: a stranger, no hello yet
    std::int64_t accepted_ns = 0;
    std::uint32_t answered = 0;  // the last question
    bool writes = false;         // epoll tells when it can be written
  };
  struct Command {
    Kind kind;
    std::string payload;
  };

  void serve();
  void accept_all(std::int64_t now);
  bool make_room(std::int64_t now);
  void work(int fd, std::uint32_t events, std::int64_t now);
  bool hear(Connection& connection, const Frame& frame, std::int64_t now);
  bool hear_hello(Connection& connection, const Frame& frame, std::int64_t now);
  bool tell_clock(Connection& connection, const Frame& frame);
  bool tell(Connection& connection, Kind kind, std::string_view payload);
  bool watch_writes(Connection& connection);
  void listen_again(bool on);
  void drop(int fd, std::int64_t now);
  void sweep(std::int64_t now);
  void run_commands(std::int64_t now);
  void post(Kind kind, std::string payload);
  void deal_roster();
  void turn_away(OddClaim claim);

  HubOptions options_;
  Fd listener_;
  Fd epoll_;
  Fd wake_;
  Welcome welcome_;
  std::string clock_;  // see which_clock()
  std::size_t most_connections_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;  // by descriptor; the thread's alone
  std::vector<int> fd_of_rank_;                           // the thread's alone
  std::size_t open_ = 0;
  std::size_t strangers_ = 0;
  bool listening_ = true;
  std::int64_t last_turn_ns_ = 0;
  std::int64_t last_sweep_ns_ = 0;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Ranks ranks_;
  HubNotes notes_;
  std::int64_t earliest_deadline_ns_ = 0;
  bool full_ = false;  // out of descriptors: nobody else can join
  std::vector<Command> commands_;
  std::uint32_t question_ = 0;
  std::uint64_t commands_posted_ = 0, commands_done_ = 0;
  std::size_t unsent_ = 0;
  std::size_t unanswered_ = 0;
  bool ended_ = false;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace oddrank::control

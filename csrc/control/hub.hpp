// The root's server: one thread that holds a connection to every guard.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/net.hpp"
#include "control/ranks.hpp"
#include "os/fd.hpp"

namespace oddrank::control {

struct HubOptions {
  int world = 1;
  std::string token;
  std::string host;  // this process's host name, for the roster and messages
  std::int64_t deadline_ns = 0;
  std::uint32_t heartbeat_ms = 0;  // 0: derived from the world size
  std::uint32_t silence_ms = 0;    // 0: derived from the time until the deadline
};

// A process of this job that was refused: its rank was taken, or its world size differs.
struct OddClaim {
  int rank = -1;  // as it reports
  bool other_world = false;
  std::string text;
};

// The hub's facts besides the ranks.
struct HubNotes {
  std::string limits;         // why ranks may be unable to connect; "": no known reason
  std::vector<OddClaim> odd;  // at most 16
  std::uint64_t foreign = 0;  // closed connections that did not prove the token
  std::string reached_at;     // this host's address as other hosts reach it; "": none has yet
};

// The constructor starts the thread, the destructor stops it. Drops a connection that does not
// prove the token or breaks the protocol, without effect on others. All methods are thread-safe.
class Hub {
 public:
  // Raises the soft limit of open files to the hard one.
  Hub(Fd listener, HubOptions options);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  ~Hub();

  // Begins stage `number` and sends GO to all guards, except in stage 0 (join). Throws Error for
  // too long a name or parameters.
  void begin(std::uint32_t number, const std::string& stage, const std::string& parameters,
             std::int64_t deadline_ns);
  // Waits until the stage is over or `until_ns`. Returns kOpen if it is not over.
  Reason wait(std::int64_t until_ns);
  // Asks every guard for its worker's state and waits for the answers until `until_ns`.
  void refresh(std::int64_t until_ns);
  // Sends each node's list of ranks to the guard of its lowest connected rank.
  void send_roster();
  // Sends END to all guards and waits until it is sent and they have closed, or `until_ns`.
  void end(int exit_code, std::int64_t until_ns);

  std::vector<RankRecord> snapshot();
  int result_count();
  // Returns the time until the earliest deadline of any process of the job.
  std::int64_t remaining_ns();
  HubNotes notes();

 private:
  struct Connection {
    Channel channel;
    int rank = -1;  // -1: no hello yet
    std::int64_t accepted_ns = 0;
    bool owes_answer = false;                    // to the current question
    bool writes = false;                         // epoll watches for EPOLLOUT
    std::string its_nonce = {}, own_nonce = {};  // "": no knock yet
    bool ours = false;                           // the peer has proved that it knows the token
  };
  struct Command {
    FrameKind kind;
    std::string payload;
  };

  void serve();
  void wake() noexcept;
  bool watch(int operation, int fd, int events) noexcept;
  void accept_all(std::int64_t now);
  bool make_room(std::int64_t now);
  void work(int fd, std::uint32_t events, std::int64_t now);
  bool hear(Connection& connection, const Frame& frame, std::int64_t now);
  bool hear_knock(Connection& connection, const Frame& frame);
  void close_connection_of(int rank);
  bool hear_hello(Connection& connection, const Frame& frame, std::int64_t now);
  bool tell_clock(Connection& connection, const Frame& frame);
  bool tell(Connection& connection, FrameKind kind, std::string_view payload);
  bool watch_writes(Connection& connection);
  void listen_again(bool on);
  void note_room(bool full, std::int64_t now);
  void drop(int fd, std::int64_t now);
  void sweep(std::int64_t now);
  void run_commands(std::int64_t now);
  void post(FrameKind kind, std::string payload);
  void settle_answer(Connection& connection);
  void deal_roster();

  HubOptions options_;
  Fd listener_;
  Fd epoll_;
  Fd wake_;
  Welcome welcome_;
  std::string clock_;  // see which_clock()
  std::size_t most_connections_ = 0;
  std::string limits_;  // why some ranks can never connect; "": all can
  std::vector<std::unique_ptr<Connection>> connections_;  // by descriptor
  std::vector<int> fd_of_rank_;
  std::size_t open_ = 0;
  std::size_t strangers_ = 0;
  bool listening_ = true;
  std::int64_t last_turn_ns_ = 0;
  std::int64_t last_sweep_ns_ = 0;

  // Guards everything that is not constant. The thread holds it during each turn of its loop,
  // except while it waits; callers hold it during each call.
  std::mutex mutex_;
  std::condition_variable changed_;
  Ranks ranks_;
  HubNotes notes_;
  std::int64_t earliest_deadline_ns_ = 0;
  std::int64_t full_since_ns_ = 0;  // no rank can join since then; 0: there is room
  std::vector<Command> commands_;
  std::uint32_t question_ = 0;
  std::uint64_t commands_posted_ = 0, commands_done_ = 0;
  std::size_t unsent_ = 0;
  std::size_t unanswered_ = 0;  // number of connections that owe an answer
  bool ended_ = false;
  bool stop_ = false;
  std::thread thread_;  // last: uses all members above
};

}  // namespace oddrank::control

// The root's server: one thread that holds a connection to every guard.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "control/clock_exchange.hpp"
#include "control/net.hpp"
#include "control/ranks.hpp"
#include "control/wire.hpp"
#include "os/clock.hpp"
#include "os/error.hpp"
#include "os/fd.hpp"

namespace oddrank::control {

struct HubOptions {
  int world = 1;
  std::string token;
  std::string host;  // this process's host name, for the roster and messages
  std::int64_t deadline_ns = 0;
  std::uint32_t heartbeat_ms = 0;  // if 0, derived from the world size
  std::uint32_t silence_ms = 0;    // if 0, derived from the time until the deadline
};

// A process of this job that was refused: its rank was taken, or its world size differs.
struct OddClaim {
  int rank = -1;  // as it reports
  bool other_world = false;
  std::string text;
  int world = 0, pid = 0;
  std::string host;
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
  Hub(Fd listener, HubOptions options)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        clock_(which_clock()),
        fd_of_rank_(static_cast<std::size_t>(options_.world), -1),
        ranks_(options_.world, 0) {
    if (!epoll_ || !wake_) throw_errno("epoll_create1 or eventfd for the root");
    welcome_.heartbeat_ms =
        options_.heartbeat_ms != 0 ? options_.heartbeat_ms : heartbeat_of(options_.world);
    welcome_.silence_ms = options_.silence_ms != 0 ? options_.silence_ms
                                                   : silence_of(options_, welcome_.heartbeat_ms);
    ranks_ = Ranks(options_.world, welcome_.silence_ms * kMs);
    const rlim_t files = raise_open_files();
    most_connections_ =
        static_cast<std::size_t>(files > 2 * kSpareFiles ? files - kSpareFiles : kSpareFiles);
    if (most_connections_ < static_cast<std::size_t>(options_.world)) {
      limits_ = notes_.limits = "the open-file limit on " + options_.host + " (" +
                                std::to_string(files) + ", hard) lets at most " +
                                std::to_string(most_connections_) + " of " +
                                std::to_string(options_.world) +
                                " ranks reach the root: raise it (ulimit -Hn, LimitNOFILE)";
    }
    for (const int fd : {listener_.get(), wake_.get()}) {
      if (!watch(EPOLL_CTL_ADD, fd, EPOLLIN)) throw_errno("epoll_ctl");
    }
    earliest_deadline_ns_ = options_.deadline_ns;
    ranks_.begin(0, options_.deadline_ns, monotonic_ns());
    thread_ = std::thread(&Hub::serve, this);
  }
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  ~Hub() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake();
    thread_.join();
  }

  // Begins stage `number` and sends GO to all guards, except in stage 0 (join). Throws Error for
  // too long a name or parameters.
  void begin(std::uint32_t number, const std::string& stage, const std::string& parameters,
             Deadline deadline) {
    std::string payload = pack(Go{number, stage, parameters});
    if (stage.size() > 47 || payload.size() > kSmallFrame - 64) {
      throw Error("stage \"" + stage.substr(0, 48) +
                  "\": a stage's name takes at most 47 bytes, its parameters 65,000");
    }
    const std::lock_guard lock(mutex_);
    ranks_.begin(number, deadline.ns(), monotonic_ns());
    if (number != 0) post(FrameKind::kGo, std::move(payload));
  }
  // Waits until the stage is over or `until`. Returns kOpen if it is not over.
  Reason wait(Deadline until) {
    std::unique_lock lock(mutex_);
    for (;;) {
      const std::int64_t now = monotonic_ns();
      const Reason reason = ranks_.decide(now, full_since_ns_);
      if (reason != Reason::kOpen || now >= until.ns()) return reason;
      // Grace periods and deadlines end without a message: check every 20 ms.
      changed_.wait_until(lock, time_point(Deadline::at_ns(std::min(until.ns(), now + 20 * kMs))));
    }
  }
  // Asks every guard for its worker's state and waits for the answers until then.
  void refresh(Deadline until) {
    std::unique_lock lock(mutex_);
    ++question_;
    post(FrameKind::kReport, packed(question_));
    changed_.wait_until(lock, time_point(until), [&] {
      return commands_.empty() && none_connected([&](const RankRecord& one) {
               return one.asked == question_ && one.answered != question_;
             });
    });
  }
  // Sends each node's list of ranks to the guard of its lowest connected rank.
  void send_roster() {
    const std::lock_guard lock(mutex_);
    post(FrameKind::kRoster, {});
  }
  // Sends END to all guards and waits until they have closed, or `until`: if this process ended
  // with a ping unread, the kernel would reset the connection, and a guard could lose an END that
  // it has not read yet.
  void end(int exit_code, Deadline until) {
    std::unique_lock lock(mutex_);
    ended_ = true;
    post(FrameKind::kEnd, packed(exit_code));
    changed_.wait_until(lock, time_point(until), [&] {
      return commands_.empty() && none_connected([](const RankRecord&) { return true; });
    });
  }

  std::vector<RankRecord> snapshot() {
    const std::lock_guard lock(mutex_);
    return ranks_.records();
  }
  int result_count() {
    const std::lock_guard lock(mutex_);
    return ranks_.results();
  }
  // Returns the time until the earliest deadline of any process of the job.
  std::int64_t remaining_ns() {
    const std::lock_guard lock(mutex_);
    return earliest_deadline_ns_ - monotonic_ns();
  }
  HubNotes notes() {
    const std::lock_guard lock(mutex_);
    return notes_;
  }

 private:
  static std::chrono::steady_clock::time_point time_point(Deadline at) {
    return std::chrono::steady_clock::now() + std::chrono::nanoseconds(at.ns() - monotonic_ns());
  }
  static constexpr rlim_t kSpareFiles = 32;  // for Python, reports and libraries of this process

  // Returns the guards' heartbeat interval: the root receives at most 5,000 heartbeats a second.
  static std::uint32_t heartbeat_of(int world) {
    return static_cast<std::uint32_t>(std::max(250, world / 5));
  }

  static std::uint32_t silence_of(const HubOptions& options, std::uint32_t heartbeat_ms) {
    const std::int64_t left = (options.deadline_ns - monotonic_ns()) / kMs;
    const auto wanted = static_cast<std::uint32_t>(std::clamp<std::int64_t>(left / 4, 2000, 5000));
    return std::max(wanted, heartbeat_ms * 5 / 2);
  }

  static rlim_t raise_open_files() noexcept {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
  }

  // Time for a hello; less where there is no room: the guards of ranks say it at once.
  static constexpr std::int64_t kStrangerNs = 5'000 * kMs;
  static constexpr std::int64_t kPoliteNs = 1'000 * kMs;
  static constexpr std::int64_t kSweepNs = 200 * kMs;
  static constexpr std::size_t kMostUnsent = std::size_t{1} << 20;

  struct Connection {
    Channel channel;
    int rank = -1;  // negative before hello
    std::int64_t accepted_ns = 0;
    bool writes = false;                         // epoll watches for EPOLLOUT
    std::string its_nonce = {}, own_nonce = {};  // "": no knock yet
    bool ours = false;                           // the peer has proved that it knows the token
  };

  void serve() {
    std::array<epoll_event, 512> events{};
    last_turn_ns_ = monotonic_ns();
    for (;;) {
      const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 100);
      const std::int64_t now = monotonic_ns();
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      if (now - last_turn_ns_ > kOwnPauseNs) {
        for (int rank = 0; rank < ranks_.world(); ++rank) {
          ranks_.record(rank).last_heard_ns += now - last_turn_ns_;
        }
      }
      last_turn_ns_ = now;
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == listener_.get()) {
          accept_all(now);
        } else if (fd == wake_.get()) {
          std::uint64_t number = 0;
          [[maybe_unused]] const ssize_t got = ::read(fd, &number, sizeof number);
        } else {
          work(fd, events[static_cast<std::size_t>(i)].events, now);
        }
      }
      run_commands(now);
      sweep(now);
      changed_.notify_all();
    }
  }
  // Whether no guard that is in contact has this trait.
  template <typename Trait>
  bool none_connected(const Trait& trait) {
    for (int rank = 0; rank < ranks_.world(); ++rank) {
      const RankRecord& one = ranks_.record(rank);
      const bool is_open = fd_of_rank_[static_cast<std::size_t>(rank)] >= 0;
      if (is_open && one.contact == Contact::kOk && trait(one)) return false;
    }
    return true;
  }
  void wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  }
  bool watch(int operation, int fd, int events) noexcept {
    epoll_event event{};
    event.events = static_cast<std::uint32_t>(events);
    event.data.fd = fd;
    return ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
  }
  void accept_all(std::int64_t now) {
    for (int turn = 0; turn < 512; ++turn) {
      if (open_ >= most_connections_) {
        listen_again(false);
        return;
      }
      Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        const bool full = errno == EMFILE || errno == ENFILE;
        if (full) listen_again(false);
        note_room(full && strangers_ == 0, now);  // strangers give way first: see sweep()
        return;
      }
      note_room(false, now);
      tune_connection(socket.get(), static_cast<int>(welcome_.silence_ms));
      const int fd = socket.get();
      if (!watch(EPOLL_CTL_ADD, fd, EPOLLIN)) continue;
      const auto index = static_cast<std::size_t>(fd);
      if (connections_.size() <= index) connections_.resize(index + 1);
      connections_[index] = std::make_unique<Connection>(
          Connection{Channel(std::move(socket), kStrangerFrame), -1, now});
      ++open_;
      ++strangers_;
    }
  }
  void work(int fd, std::uint32_t events, std::int64_t now) {
    const auto index = static_cast<std::size_t>(fd);
    if (index >= connections_.size() || !connections_[index]) return;
    Connection& one = *connections_[index];
    bool good = true;
    if ((events & EPOLLOUT) != 0) good = one.channel.flush() && watch_writes(one);
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
      const bool open = one.channel.receive();
      // Any bytes, also part of a long result, are a sign of life.
      if (open && one.rank >= 0) ranks_.record(one.rank).last_heard_ns = now;
      while (auto frame = one.channel.next()) {
        if (!hear(one, *frame, now)) {
          drop(fd, now);
          return;
        }
      }
      good = good && open && !one.channel.broken();
    }
    if (!good) drop(fd, now);
  }
  bool hear(Connection& connection, const Frame& frame, std::int64_t now) {
    if (connection.rank < 0) {
      return connection.own_nonce.empty() ? hear_knock(connection, frame)
                                          : hear_hello(connection, frame, now);
    }
    const int rank = connection.rank;
    ranks_.set_contact(rank, Contact::kOk, now);
    if (frame.kind == FrameKind::kPing) {
      return tell(connection, FrameKind::kPong, {});
    }
    if (frame.kind == FrameKind::kAskClock) return tell_clock(connection, frame);
    if (frame.kind == FrameKind::kState) {
      auto state = unpack<State>(frame.payload);
      if (!state) return false;
      if (!ended_) ranks_.set_state(rank, std::move(*state), now);
      return true;
    }
    Unpacker in(frame.payload);
    const auto stage = in.next<std::uint32_t>();
    if (frame.kind == FrameKind::kResult && in.ok()) {
      ranks_.set_result(rank, stage, in.rest());
      return true;
    }
    if (frame.kind == FrameKind::kFail) {
      ranks_.set_failure(rank, stage, in.text(4096), now);
      return in.ok();
    }
    return false;
  }
  bool hear_knock(Connection& connection, const Frame& frame) {
    const auto knock = unpack<Knock>(frame.payload);
    if (frame.kind != FrameKind::kKnock || !knock) return false;
    connection.its_nonce = knock->nonce;
    connection.own_nonce = random_token();
    const std::string proof = root_proof(options_.token, knock->nonce, connection.own_nonce);
    return tell(connection, FrameKind::kProof, pack(Proof{connection.own_nonce, proof}));
  }
  void close_connection_of(int rank) {
    int& fd = fd_of_rank_[static_cast<std::size_t>(rank)];
    if (fd < 0) return;
    connections_[static_cast<std::size_t>(fd)].reset();
    --open_;
    fd = -1;
  }
  bool hear_hello(Connection& connection, const Frame& frame, std::int64_t now) {
    if (frame.kind != FrameKind::kHello) return false;
    auto hello = unpack<Hello>(frame.payload);
    if (!hello || !same_secret(hello->proof, guard_proof(options_.token, connection.its_nonce,
                                                         connection.own_nonce))) {
      return false;
    }
    connection.ours = true;
    const std::string who = "rank " + std::to_string(hello->rank) + " (" + hello->host + ", pid " +
                            std::to_string(hello->pid) + ")";
    const bool fits =
        hello->world == options_.world && hello->rank >= 0 && hello->rank < options_.world;
    const RankRecord* taken = fits ? &ranks_.record(hello->rank) : nullptr;
    if (taken != nullptr && taken->contact == Contact::kNever) taken = nullptr;
    const bool again = taken != nullptr && taken->hello.is_of_same_process(*hello);
    if (!hello->parting.empty()) {
      // A live guard that gives up the root reports why on a new connection: the old one is stuck.
      if (again) close_connection_of(hello->rank);
      if (again && !ended_) ranks_.set_parting(hello->rank, std::move(hello->parting), now);
      return false;
    }
    if (again) {
      const bool lost = taken->contact == Contact::kSilent || taken->contact == Contact::kClosed;
      // A guard dials several of the root's addresses: one of its hellos came earlier.
      if (!lost) return false;
      close_connection_of(hello->rank);  // the guard comes back: the network was cut for a while
    }
    if (!fits || (taken != nullptr && !again)) {
      std::string odd = who + " says that the world has " + std::to_string(hello->world) +
                        " ranks; the root says " + std::to_string(options_.world);
      if (fits) {
        odd = who + " came although that rank was already here (pid " +
              std::to_string(taken->hello.pid) + " on " + taken->hello.host + ")";
      }
      if (notes_.odd.size() < 16) {
        notes_.odd.push_back(
            {hello->rank, !fits, std::move(odd), hello->world, hello->pid, hello->host});
      }
      static_cast<void>(connection.channel.send(FrameKind::kEnd, packed(1)));
      return false;
    }
    connection.rank = hello->rank;
    if (notes_.reached_at.empty()) notes_.reached_at = reached_at(connection.channel.fd());
    connection.channel.raise_limit(kResultFrame);
    --strangers_;
    fd_of_rank_[static_cast<std::size_t>(hello->rank)] = connection.channel.fd();
    earliest_deadline_ns_ =
        std::min(earliest_deadline_ns_, now + std::int64_t{hello->remaining_ms} * kMs);
    ranks_.joined(connection.rank, std::move(*hello), now);
    return tell(connection, FrameKind::kWelcome, pack(welcome_));
  }
  // Reads the clock just before sending: this turn of the loop may have begun much earlier.
  bool tell_clock(Connection& connection, const Frame& frame) {
    Unpacker in(frame.payload);
    ClockReading reading{in.next<std::uint32_t>(), 0, clock_};
    if (!in.ok()) return false;
    reading.ns = monotonic_ns();
    return tell(connection, FrameKind::kClock, pack(reading));
  }
  bool tell(Connection& connection, FrameKind kind, std::string_view payload) {
    return connection.channel.send(kind, payload) && watch_writes(connection);
  }
  // Watches for EPOLLOUT while bytes are unsent. Returns false if too many are: the peer won't
  // read.
  bool watch_writes(Connection& connection) {
    if (connection.channel.wants_write() != connection.writes) {
      connection.writes = connection.channel.wants_write();
      watch(EPOLL_CTL_MOD, connection.channel.fd(),
            connection.writes ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
    return connection.channel.unsent() < kMostUnsent;
  }
  // Turn off while there is no room: a pending connection would wake epoll in a busy loop.
  void listen_again(bool on) {
    listening_ = on;
    watch(EPOLL_CTL_MOD, listener_.get(), on ? int{EPOLLIN} : 0);
  }
  // Sets or clears the note on missing file descriptors: each accept() shows whether there are any.
  void note_room(bool full, std::int64_t now) {
    if (full == (full_since_ns_ != 0)) return;
    full_since_ns_ = full ? now : 0;
    notes_.limits = limits_;
    if (full && limits_.empty()) {
      notes_.limits = "no more files can be opened on " + options_.host + ": only " +
                      std::to_string(open_) + " ranks have reached the root";
    }
  }
  void drop(int fd, std::int64_t now) {
    const auto index = static_cast<std::size_t>(fd);
    const int rank = connections_[index]->rank;
    const bool ours = connections_[index]->ours;
    const Channel& channel = connections_[index]->channel;
    // A reset does not prove a death: a guard that gives up a stuck connection causes one too.
    const bool silent = channel.unreachable() || channel.error() == ECONNRESET;
    connections_[index].reset();
    --open_;
    if (rank < 0) {
      --strangers_;
      notes_.foreign += ours ? 0 : 1;
      return;
    }
    fd_of_rank_[static_cast<std::size_t>(rank)] = -1;
    if (!ended_) ranks_.set_contact(rank, silent ? Contact::kSilent : Contact::kClosed, now);
  }
  void sweep(std::int64_t now) {
    if (now - last_sweep_ns_ < kSweepNs) return;
    last_sweep_ns_ = now;
    if (open_ - strangers_ >= most_connections_) {
      note_room(true, now);
    } else if ((!listening_ || full_since_ns_ != 0) && open_ < most_connections_) {
      listen_again(true);
      accept_all(now);
    }
    if (strangers_ > 0) {
      const bool has_room = listening_ && full_since_ns_ == 0;
      const std::int64_t patience = has_room ? kStrangerNs : kPoliteNs;
      for (std::size_t fd = 0; fd < connections_.size(); ++fd) {
        const auto& one = connections_[fd];
        if (one && one->rank < 0 && now - one->accepted_ns > patience) {
          drop(static_cast<int>(fd), now);
        }
      }
    }
    if (ended_) return;
    for (int rank = 0; rank < ranks_.world(); ++rank) {
      const RankRecord& one = ranks_.record(rank);
      if (one.contact == Contact::kOk && now - one.last_heard_ns > welcome_.silence_ms * kMs) {
        ranks_.set_contact(rank, Contact::kSilent, now);
      }
    }
  }
  void run_commands(std::int64_t now) {
    for (const Frame& command : commands_) {
      if (command.kind == FrameKind::kRoster) {
        deal_roster();
        continue;
      }
      for (const int fd : fd_of_rank_) {
        if (fd < 0) continue;
        Connection& one = *connections_[static_cast<std::size_t>(fd)];
        // A guard that joins later is not asked. A silent one may come back.
        if (command.kind == FrameKind::kReport) ranks_.record(one.rank).asked = question_;
        if (!tell(one, command.kind, command.payload)) drop(fd, now);
      }
    }
    commands_.clear();
  }
  void post(FrameKind kind, std::string payload) {
    commands_.push_back({kind, std::move(payload)});
    wake();
  }
  void deal_roster() {
    std::map<std::pair<int, std::string>, Roster> nodes;
    for (int rank = 0; rank < ranks_.world(); ++rank) {
      const Hello& hello = ranks_.record(rank).hello;
      if (hello.rank < 0) continue;
      Roster& roster = nodes[{hello.node, hello.host}];
      roster.root_host = options_.host;
      roster.processes.push_back({rank, hello.pid, hello.start_time});
    }
    for (const auto& [node, roster] : nodes) {
      for (const auto& process : roster.processes) {
        const int fd = fd_of_rank_[static_cast<std::size_t>(process.rank)];
        if (fd < 0) continue;
        Connection& one = *connections_[static_cast<std::size_t>(fd)];
        static_cast<void>(tell(one, FrameKind::kRoster, pack(roster)));
        break;
      }
    }
  }

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
  std::vector<Frame> commands_;     // to all guards
  std::uint32_t question_ = 0;
  bool ended_ = false;
  bool stop_ = false;
  std::thread thread_;  // last: uses all members above
};

}  // namespace oddrank::control

// Simulates many guards in one process, to measure the root: swarm PORT TOKEN WORLD [FILE]. Starts
// at a line on stdin. Each guard sends hello and heartbeats, answers every stage with its state and
// the content of FILE, or 256 bytes (stage "clock": with offset and error of the root's clock,
// within 5 s), and leaves at end.
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "control/clock_exchange.hpp"
#include "control/messages.hpp"
#include "control/net.hpp"
#include "control/wire.hpp"
#include "os/clock.hpp"

namespace {

using namespace oddrank;
using namespace oddrank::control;

struct Guard {
  Channel channel{Fd()};
  bool connected = false;
  std::int64_t next_ping_ns = 0;
  std::uint32_t stage = 0;
  ClockExchange clock{0, 1, ""};
};

class Swarm {
 public:
  Swarm(std::uint16_t port, std::string token, int world, std::string answer)
      : port_(port),
        token_(std::move(token)),
        answer_(std::move(answer)),
        guards_(static_cast<std::size_t>(world)),
        epoll_(::epoll_create1(0)) {}

  void run() {
    for (std::size_t rank = 0; rank < guards_.size(); ++rank) connect(rank);
    std::array<epoll_event, 512> events{};
    while (open_ > 0) {
      const int wait_ms = asking_ > 0 ? 1 : 50;
      const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), wait_ms);
      for (int i = 0; i < count; ++i) work(events[static_cast<std::size_t>(i)].data.u32);
      beat(monotonic_ns());
      if (asking_ > 0) ask_clock(monotonic_ns());
    }
  }

 private:
  void connect(std::size_t rank) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    const auto to = numeric_address("127.0.0.1", port_);
    if (!socket ||
        (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to->storage), to->size) != 0 &&
         errno != EINPROGRESS)) {
      std::perror("swarm: connect");
      std::exit(1);
    }
    tune_connection(socket.get(), 5000);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT;
    event.data.u32 = static_cast<std::uint32_t>(rank);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event);
    guards_[rank].channel = Channel(std::move(socket));
    ++open_;
  }

  void work(std::size_t rank) {
    Guard& guard = guards_[rank];
    if (guard.channel.fd() < 0) return;
    if (!guard.connected) {
      guard.connected = true;
      Knock knock;
      knock.nonce = "swarm";
      guard.channel.send(FrameKind::kKnock, pack(knock));
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = static_cast<std::uint32_t>(rank);
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, guard.channel.fd(), &event);
    }
    bool open = guard.channel.receive();
    while (auto frame = guard.channel.next()) open = hear(guard, rank, *frame) && open;
    if (open) return;
    guard.channel = Channel(Fd());
    --open_;
  }

  bool hear(Guard& guard, std::size_t rank, const Frame& frame) {
    State state;
    state.stage = "simulated";
    if (frame.kind == FrameKind::kProof) {
      Hello hello;
      hello.proof = guard_proof(token_, "swarm", unpack<Proof>(frame.payload)->nonce);
      hello.rank = hello.pid = static_cast<std::int32_t>(rank);
      hello.world = static_cast<std::int32_t>(guards_.size());
      hello.node = hello.rank / 8;
      hello.local_rank = hello.rank % 8;
      hello.remaining_ms = 120'000;
      hello.host = "node" + std::to_string(hello.node);
      guard.channel.send(FrameKind::kHello, pack(hello));
    } else if (frame.kind == FrameKind::kWelcome) {
      heartbeat_ns_ = std::int64_t{unpack<Welcome>(frame.payload)->heartbeat_ms} * 1'000'000;
      // Spreads the heartbeats over the interval: real guards start at different times.
      guard.next_ping_ns = monotonic_ns() + heartbeat_ns_ * static_cast<std::int64_t>(rank) /
                                                static_cast<std::int64_t>(guards_.size());
    } else if (frame.kind == FrameKind::kGo) {
      const auto go = unpack<Go>(frame.payload);
      guard.stage = state.stage_number = go->stage_number;
      guard.channel.send(FrameKind::kState, pack(state));
      if (go->stage == "clock") {
        guard.clock = ClockExchange(static_cast<int>(rank), static_cast<int>(guards_.size()), "");
        guard.clock.ask({1, monotonic_ns() + 4'500'000'000, false}, monotonic_ns());
        ++asking_;
      } else {
        publish(guard, answer_);
      }
    } else if (frame.kind == FrameKind::kClock) {
      const std::int64_t now = monotonic_ns();
      if (const auto reading = unpack<ClockReading>(frame.payload)) guard.clock.hear(*reading, now);
    } else if (frame.kind == FrameKind::kReport) {
      state.report = Unpacker(frame.payload).next<std::uint32_t>();
      guard.channel.send(FrameKind::kState, pack(state));
    }
    return frame.kind != FrameKind::kEnd;
  }

  void publish(Guard& guard, const std::string& result) {
    guard.channel.send(FrameKind::kResult, packed(guard.stage) + result);
  }

  void ask_clock(std::int64_t now) {
    for (Guard& guard : guards_) {
      if (guard.clock.due(now)) {
        guard.channel.send(FrameKind::kAskClock, packed(guard.clock.begin(monotonic_ns())));
      }
      if (const auto answer = guard.clock.answer(now, false)) {
        --asking_;
        publish(guard, answer->trouble.empty() ? std::to_string(answer->offset_ns) + " " +
                                                     std::to_string(answer->error_ns)
                                               : "");
      }
    }
  }

  void beat(std::int64_t now) {
    if (heartbeat_ns_ == 0) return;
    for (Guard& guard : guards_) {
      if (guard.next_ping_ns == 0 || now < guard.next_ping_ns || guard.channel.fd() < 0) continue;
      guard.next_ping_ns = now + heartbeat_ns_;
      guard.channel.send(FrameKind::kPing, "");
    }
  }

  std::uint16_t port_;
  std::string token_;
  std::string answer_;
  std::vector<Guard> guards_;
  Fd epoll_;
  int open_ = 0;
  int asking_ = 0;
  std::int64_t heartbeat_ns_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  std::string answer(256, 'r');
  if (argc == 5) {
    std::ifstream file(argv[4], std::ios::binary);
    answer.assign(std::istreambuf_iterator<char>(file), {});
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  Swarm swarm(static_cast<std::uint16_t>(std::atoi(argv[1])), argv[2], std::atoi(argv[3]),
              std::move(answer));
  if (std::getchar() == EOF) return 1;
  swarm.run();
}

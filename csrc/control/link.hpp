// The guard's connection to the root: tries its addresses until one answers the hello.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <list>
#include <string>
#include <system_error>
#include <vector>

#include "control/messages.hpp"
#include "control/net.hpp"
#include "control/process.hpp"
#include "control/wire.hpp"
#include "os/clock.hpp"
#include "os/error.hpp"

namespace oddrank::control {

// The worker of a guard, and the sources of the root's address.
struct GuardIdentity : Identity {
  std::string address;               // the root's; empty: something else will bring it
  std::string rendezvous_file;       // a file where the address may appear; empty: none
  std::vector<std::string> fetcher;  // a command that prints it; empty: none

  // Returns the hello of its guard, which still has that many milliseconds.
  Hello hello(const ProcessWatch& worker, pid_t launcher_pid, std::uint32_t remaining_ms) const {
    constexpr std::size_t kLongestHost = 200;
    Hello made;
    static_cast<Identity&>(made) = *this;
    made.host.resize(std::min(made.host.size(), kLongestHost));
    made.launcher_pid = launcher_pid;
    made.pid = worker.pid();
    made.start_time = worker.start_time();
    made.remaining_ms = remaining_ms;
    return made;
  }
};

// An address may be unreachable or another host's (two hosts may have the same bridge address): a
// try sends its hello only to a peer that proves the job's token, and the link is up only after the
// root's welcome. Tries start one after the other and run in parallel. A link that was up and is
// lost stays lost; if the root fell silent, new tries only send it the reason. Not thread-safe.
class Link {
 public:
  // `longest_turn_ns`: a longer turn of the owner's loop means that this process was paused.
  explicit Link(std::int64_t longest_turn_ns = kOwnPauseNs) : longest_turn_ns_(longest_turn_ns) {}
  // `published`: the root already listens there. Then the link is lost once all addresses have
  // refused for 5 s. Returns false if the text is no address.
  bool dial(const std::string& text, Hello hello, bool published) {
    RootAddress address;
    try {
      address = RootAddress::parse(text);
    } catch (const Error&) {
      return false;
    }
    if (has_address()) return true;
    addresses_ = address.resolve();
    refused_.assign(addresses_.size(), false);
    hello_ = std::move(hello);
    token_ = address.token;
    published_ = published;
    where_ = address.text().substr(0, address.text().find('#'));
    trouble_ = "no answer from " + where_;
    return true;
  }
  bool dialing() const noexcept { return !addresses_.empty() && !up_ && !lost_; }
  bool up() const noexcept { return up_; }
  bool lost() const noexcept { return lost_; }
  // Whether the reason for giving up the root is still to be sent.
  bool parting() const noexcept { return parting_; }
  bool has_address() const noexcept { return !addresses_.empty(); }
  // Returns why there is no link, for messages.
  const std::string& trouble() const noexcept { return trouble_; }
  const Welcome& welcome() const noexcept { return welcome_; }

  // Starts tries, gives up old ones, notices silence. Call it at every turn of the loop.
  void tick(std::int64_t now) {
    if (last_tick_ != 0 && now - last_tick_ > longest_turn_ns_) last_heard_ += now - last_tick_;
    last_tick_ = now;
    // A root that still reads a long result is alive: its pong waits behind the result.
    const std::size_t unsent = up_ ? tries_.front().channel.unsent() : 0;
    if (unsent < unsent_) last_heard_ = now;
    unsent_ = unsent;
    if (up_ && now - last_heard_ > welcome_.silence_ms * kMs) {
      lose("silent for " + std::to_string((now - last_heard_) / kMs) + " ms", true);
    }
    if (!dialing() && !parting_) return;
    tries_.remove_if([&](const Try& one) {
      const bool is_silent = now - one.started > kTryNs;
      if (is_silent) refused_[one.address] = false;
      return is_silent;
    });
    if (now - last_start_ >= kNextTryNs) start_try(now);
    if (parting_) return;
    if (std::find(refused_.begin(), refused_.end(), false) != refused_.end()) {
      refused_since_ = 0;
      return;
    }
    if (refused_since_ == 0) refused_since_ = now;
    const bool may_answer =
        std::any_of(tries_.begin(), tries_.end(), [](const Try& one) { return one.connected; });
    if (published_ && !may_answer && now - refused_since_ > kRefusedNs) lose(trouble_, false);
  }
  void add_polls(std::vector<pollfd>& polls) const {
    for (const Try& one : tries_) {
      const bool writes = !one.connected || one.channel.wants_write();
      polls.push_back({one.channel.fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
    }
  }
  // Reads and writes without blocking. Returns the root's frames after its welcome.
  std::vector<Frame> work(std::int64_t now) {
    std::vector<Frame> frames;
    if (parting_) work_partings();
    if (lost_) return frames;
    for (auto one = tries_.begin(); one != tries_.end();) {
      std::vector<Frame> fresh;
      const bool open = work_try(*one, fresh);
      if (!fresh.empty()) last_heard_ = now;
      if (!up_ && !fresh.empty() && fresh.front().kind == FrameKind::kWelcome) {
        if (const auto welcome = unpack<Welcome>(fresh.front().payload)) {
          welcome_ = *welcome;
          up_ = true;
          tune_connection(one->channel.fd(), static_cast<int>(welcome_.silence_ms));
          fresh.erase(fresh.begin());
        }
      }
      // A root refuses a hello (its rank is taken) by an END without a welcome.
      const bool refused = !up_ && !fresh.empty() && fresh.front().kind == FrameKind::kEnd;
      if (up_ || refused) frames.insert(frames.end(), fresh.begin(), fresh.end());
      if (up_) {
        if (!open) {
          lose_channel(one->channel);
        } else {
          tries_.splice(tries_.begin(), tries_, one);
          tries_.erase(std::next(tries_.begin()), tries_.end());
        }
        return frames;
      }
      one = open ? std::next(one) : tries_.erase(one);
    }
    return frames;
  }
  void send(FrameKind kind, std::string_view payload) {
    if (up_ && !tries_.front().channel.send(kind, payload)) lose_channel(tries_.front().channel);
  }

 private:
  static constexpr std::int64_t kNextTryNs = 300 * kMs;
  static constexpr std::int64_t kTryNs = 4'000 * kMs;
  static constexpr std::int64_t kRefusedNs = 5'000 * kMs;

  static std::string text_of(int number) { return std::generic_category().message(number); }

  struct Try {
    std::size_t address;
    Channel channel;
    std::int64_t started;
    bool connected = false;
    std::string nonce = {};
    bool proven = false;  // the peer has proved the token; the hello is sent
  };
  void start_try(std::int64_t now) {
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      const std::size_t address = (next_ + i) % addresses_.size();
      const bool open = std::any_of(tries_.begin(), tries_.end(),
                                    [&](const Try& one) { return one.address == address; });
      if (open) continue;
      next_ = address + 1;
      last_start_ = now;
      const SocketAddress& to = addresses_[address];
      Fd socket(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!socket) return;
      tune_connection(socket.get(), static_cast<int>(kTryNs / kMs));
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) != 0 &&
          errno != EINPROGRESS) {
        trouble_ = "no answer from " + where_ + " (" + text_of(errno) + ")";
        refused_[address] = true;
        return;
      }
      Try one{address, Channel(std::move(socket), kSmallFrame), now, false, random_token(), false};
      tries_.push_back(std::move(one));
      return;
    }
  }
  // Returns false once this try has failed.
  bool work_try(Try& one, std::vector<Frame>& frames) {
    if (!one.connected) {
      pollfd entry{one.channel.fd(), POLLOUT, 0};
      if (::poll(&entry, 1, 0) <= 0) return true;
      int number = 0;
      socklen_t size = sizeof number;
      ::getsockopt(one.channel.fd(), SOL_SOCKET, SO_ERROR, &number, &size);
      if (number != 0) {
        trouble_ = "no answer from " + where_ + " (" + text_of(number) + ")";
        refused_[one.address] = number != ETIMEDOUT;
        return false;
      }
      one.connected = true;
      Knock knock;
      knock.nonce = one.nonce;
      if (!one.channel.send(FrameKind::kKnock, pack(knock))) return false;
    }
    const bool open = one.channel.flush() && one.channel.receive();
    while (auto frame = one.channel.next()) {
      if (one.proven) {
        frames.push_back(std::move(*frame));
      } else if (!check_proof(one, *frame)) {
        refused_[one.address] = true;
        trouble_ = "no root of this job at " + where_;
        return false;
      }
    }
    if (!open && !up_) {
      refused_[one.address] = true;
      trouble_ = "no welcome from " + where_ + " (closed)";
    }
    return open && !one.channel.broken();
  }
  // The token itself is never sent, and no frame counts before the peer has proved that it knows
  // it.
  bool check_proof(Try& one, const Frame& frame) {
    if (frame.kind != FrameKind::kProof) return false;
    const auto proof = unpack<Proof>(frame.payload);
    if (!proof || !same_secret(proof->proof, root_proof(token_, one.nonce, proof->nonce))) {
      return false;
    }
    one.proven = true;
    refused_[one.address] = false;
    hello_.proof = guard_proof(token_, one.nonce, proof->nonce);
    return one.channel.send(FrameKind::kHello, pack(hello_));
  }
  // Sends the parting. The root has read it once it closes a proven connection.
  void work_partings() {
    for (auto one = tries_.begin(); one != tries_.end();) {
      std::vector<Frame> none;
      if (work_try(*one, none)) {
        ++one;
      } else if (one->proven) {
        parting_ = false;
        tries_.clear();
        silent_.clear();
        return;
      } else {
        one = tries_.erase(one);
      }
    }
  }
  void lose(const std::string& why, bool is_silent) {
    if (up_ && is_silent) {
      parting_ = true;
      hello_.parting = why;
      next_ = tries_.front().address;
      last_start_ = 0;
      silent_.splice(silent_.end(), tries_);
    }
    lost_ = true;
    up_ = false;
    trouble_ = why;
    tries_.clear();
  }
  void lose_channel(const Channel& channel) {
    const bool is_silent = channel.unreachable();
    lose(is_silent ? "silent (" + text_of(channel.error()) + ")" : "its connection was closed",
         is_silent);
  }

  std::int64_t longest_turn_ns_;
  std::vector<SocketAddress> addresses_;
  std::vector<bool> refused_;  // per address: by its last try that ended
  Hello hello_;
  bool published_ = false;
  bool up_ = false;
  bool lost_ = false;
  bool parting_ = false;
  std::string token_;
  std::string where_;  // the addresses without the token, for messages
  std::string trouble_ = "no address was published";
  Welcome welcome_;
  std::list<Try> tries_;   // once up: only the one with the welcome
  std::list<Try> silent_;  // the silent connection: closed once the root has the reason
  std::size_t next_ = 0;
  std::int64_t last_start_ = 0;
  std::int64_t refused_since_ = 0;  // all addresses; 0: not all
  std::int64_t last_heard_ = 0;
  std::int64_t last_tick_ = 0;
  std::size_t unsent_ = 0;  // at the last tick
};

}  // namespace oddrank::control

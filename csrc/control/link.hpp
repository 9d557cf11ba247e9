// The guard's connection to the root: tries its addresses until one answers the hello.
#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "control/messages.hpp"
#include "control/net.hpp"
#include "control/process.hpp"

namespace oddrank::control {

// Who a guard's worker is, and what may bring the root's address.
struct GuardIdentity : Identity {
  std::string address;               // the root's; empty: something else will bring it
  std::string rendezvous_file;       // a file where the address may appear; empty: none
  std::vector<std::string> fetcher;  // a command that prints it; empty: none

  // Returns the hello of its guard, which still has that many milliseconds.
  Hello hello(const ProcessWatch& worker, pid_t launcher_pid, std::uint32_t remaining_ms) const;
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
  // refused for 5 s.
  void dial(const RootAddress& address, Hello hello, bool published);
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
  void tick(std::int64_t now);
  void add_polls(std::vector<pollfd>& polls) const;
  // Reads and writes without blocking. Returns the root's frames after its welcome.
  std::vector<Frame> work(std::int64_t now);
  void send(FrameKind kind, std::string_view payload);

 private:
  struct Try {
    std::size_t address;
    Channel channel;
    std::int64_t started;
    bool connected = false;
    std::string nonce = {};
    bool proven = false;  // the peer has proved the token; the hello is sent
  };
  void start_try(std::int64_t now);
  bool work_try(Try& one, std::vector<Frame>& frames);
  bool check_proof(Try& one, const Frame& frame);
  void work_partings();
  void lose(const std::string& why, bool is_silent);
  void lose_channel(const Channel& channel);

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

// The guard's way to the root: tries its addresses until one answers the hello.
#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "control/messages.hpp"
#include "control/net.hpp"

namespace oddrank::control {

// An address may lead nowhere, or to a stranger (two hosts may have the same bridge address): only
// the root's welcome counts. Tries start one after the other and go on side by side. Once up, a
// link that is lost stays lost. Not thread-safe.
class Link {
 public:
  // `published`: the address comes from a root that listens already, so that being refused
  // everywhere for five seconds means that the root is gone.
  void dial(const RootAddress& address, Hello hello, bool published);
  bool dialing() const noexcept { return !addresses_.empty() && !up_ && !lost_; }
  bool up() const noexcept { return up_; }
  bool lost() const noexcept { return lost_; }
  bool has_address() const noexcept { return !addresses_.empty(); }
  // Why there is no link, for the partial view.
  const std::string& trouble() const noexcept { return trouble_; }
  const Welcome& welcome() const noexcept { return welcome_; }

  // Time passes: starts tries, gives up old ones, notices silence.
  void tick(std::int64_t now);
  void add_polls(std::vector<pollfd>& polls) const;
  // Reads and writes what is possible; the root's frames after its welcome.
  std::vector<Frame> work(std::int64_t now);
  void send(Kind kind, std::string_view payload);

 private:
  struct Try {
    std::size_t address;
    Channel channel;
    std::int64_t started;
    bool connected = false;
  };
  void start_try(std::int64_t now);
  bool work_try(Try& one, std::vector<Frame>& frames);
  void lose(const std::string& why);
  void lose_channel(const Channel& channel);

  std::vector<SocketAddress> addresses_;
  std::vector<bool> refused_;
  Hello hello_;
  bool published_ = false;
  bool up_ = false;
  bool lost_ = false;
  std::string where_;  // the addresses, without the token
  std::string trouble_ = "no address was published";
  Welcome welcome_;
  std::list<Try> tries_;  // once up: the one that was welcomed
  std::size_t next_ = 0;
  std::int64_t last_start_ = 0;
  std::int64_t refused_since_ = 0;
  std::int64_t last_heard_ = 0;
  std::int64_t last_tick_ = 0;
  std::size_t unsent_ = 0;  // at the last tick
};

}  // namespace oddrank::control

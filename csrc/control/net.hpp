// Numeric addresses and non-blocking sockets; names are never resolved here.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "control/wire.hpp"

namespace oddrank::control {

// Who took longer for a turn was paused itself (stopped, starved): that is not the others' silence.
inline constexpr std::int64_t kOwnPauseNs = 500 * kMs;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// "10.0.0.1,fe80::1:29511#token": where the root listens, most likely first, and the job's secret.
struct RootAddress {
  std::vector<std::string> hosts;  // numeric
  std::uint16_t port = 0;
  std::string token;

  std::string text() const;
  // Throws Error: the message says what an address looks like.
  static RootAddress parse(const std::string& text);
  std::vector<SocketAddress> resolve() const;
};

// Empty where `host` is not a numeric address.
std::optional<SocketAddress> numeric_address(const std::string& host, std::uint16_t port);
// IPv4 also where it is mapped into IPv6; empty of other families.
std::string numeric_text(const sockaddr* address);
// The addresses of this host's interfaces that are up, loopback only where there is no other;
// `first` leads where it is numeric.
std::vector<std::string> interface_addresses(const std::string& first);
// 128 random bits in hexadecimal.
std::string random_token();
// Listens on all interfaces (0: any port), IPv6 and IPv4 where the host has both. Throws
// SystemError.
Fd listen_on(std::uint16_t port);
std::uint16_t port_of(int listener);
// No delay, and unacknowledged data ends the connection after `silence_ms`.
void tune_connection(int socket, int silence_ms) noexcept;

// A non-blocking stream of frames. Owns its socket. Not thread-safe.
class Channel {
 public:
  explicit Channel(Fd socket, std::size_t limit = kResultFrame)
      : socket_(std::move(socket)), reader_(limit) {}
  int fd() const noexcept { return socket_.get(); }
  // Sends what the socket takes now and keeps the rest. False once the peer is gone.
  bool send(Kind kind, std::string_view payload);
  bool flush();
  bool wants_write() const noexcept { return sent_ < unsent_.size(); }
  std::size_t unsent() const noexcept { return unsent_.size() - sent_; }
  // Reads what is there. False once the peer is gone or broke the rules; frames that came before
  // are still given by next().
  bool receive();
  std::optional<Frame> next() { return reader_.next(); }
  bool broken() const noexcept { return reader_.broken(); }
  // errno of what ended the stream; 0: none, or the peer closed it.
  int error() const noexcept { return error_; }
  // Whether it ended because nothing came back from the peer's host, rather than by its will.
  bool unreachable() const noexcept;
  void raise_limit(std::size_t limit) noexcept { reader_.raise_limit(limit); }

 private:
  Fd socket_;
  FrameReader reader_;
  std::string unsent_;
  std::size_t sent_ = 0;
  int error_ = 0;
};

}  // namespace oddrank::control

// Numeric addresses, interfaces and non-blocking sockets. Never resolves names: a host's own name
// is often 127.0.1.1 in /etc/hosts, and in containers it may not resolve.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/wire.hpp"
#include "os/clock.hpp"
#include "os/fd.hpp"

namespace oddrank::control {

// A longer loop turn means that this process was paused: don't count it as a peer's silence.
inline constexpr std::int64_t kOwnPauseNs = 500 * kMs;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// The root's addresses, most likely first, its port and the job's secret, for example
// "10.0.0.1,2001:db8::1:29511#token".
struct RootAddress {
  std::vector<std::string> hosts;  // numeric
  std::uint16_t port = 0;
  std::string token;

  std::string text() const;
  // Throws Error, whose message shows the expected form.
  static RootAddress parse(const std::string& text);
  std::vector<SocketAddress> resolve() const;
};

// Returns empty if `host` is not a numeric address.
std::optional<SocketAddress> numeric_address(const std::string& host, std::uint16_t port);
// Returns the address as text; IPv4-mapped IPv6 as IPv4; empty for other families.
std::string numeric_text(const sockaddr* address);
// Returns the addresses of this host's interfaces that are up: `first` if it is numeric, then IPv4,
// then IPv6; loopback only if there is no other. Omits link-local IPv6; returns at most 32.
std::vector<std::string> interface_addresses(const std::string& first);
// Returns this end's address of a connection; "" if the peer is on this host.
std::string reached_at(int socket);
// Returns the interface that packets to this numeric address leave from; "" if unknown.
std::string interface_towards(const std::string& address);
// Returns 128 random bits in hexadecimal.
std::string random_token();
// Sends without delay, and closes the connection if data stays unacknowledged for `silence_ms`.
void tune_connection(int socket, int silence_ms) noexcept;

// A non-blocking stream of frames. Owns its socket. Not thread-safe.
class Channel {
 public:
  explicit Channel(Fd socket, std::size_t limit = kResultFrame)
      : socket_(std::move(socket)), reader_(limit) {}
  int fd() const noexcept { return socket_.get(); }
  // Sends what the socket takes now and keeps the rest. Returns false once the peer is gone.
  bool send(FrameKind kind, std::string_view payload);
  bool flush();
  bool wants_write() const noexcept { return sent_ < unsent_.size(); }
  std::size_t unsent() const noexcept { return unsent_.size() - sent_; }
  // Reads what has arrived, at most 1 MiB. Returns false once the peer is gone or a frame was
  // invalid; next() still returns the frames that came before.
  bool receive();
  std::optional<Frame> next() { return reader_.next(); }
  bool broken() const noexcept { return reader_.broken(); }
  // errno of the error that ended the stream; 0: no error, or the peer closed it.
  int error() const noexcept { return error_; }
  // Whether the stream ended because the peer's host was unreachable: the peer did not close it.
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

// A socket that listens on this host, and its port.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "os/fd.hpp"

namespace oddrank::control {

// port 0: any.
inline Fd listen_on(std::uint16_t port) {
  Fd listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(port);
  ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any);
  ::listen(listener.get(), 16);
  return listener;
}

inline std::uint16_t port_of(const Fd& listener) {
  sockaddr_in6 bound{};
  socklen_t size = sizeof bound;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(bound.sin6_port);
}

}  // namespace oddrank::control

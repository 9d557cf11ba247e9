// Reads the addresses of sockets and interfaces from the kernel; sends nothing.
#include "control/route.hpp"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "control/net.hpp"
#include "os/fd.hpp"

namespace oddrank::control {
namespace {

using Asked = int (*)(int, sockaddr*, socklen_t*);

std::string address_of(int socket, Asked end) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return end(socket, address, &size) == 0 ? numeric_text(address) : "";
}

}  // namespace

std::string reached_at(int socket) {
  // Both ends of a connection within a host have the same address.
  const std::string own = address_of(socket, ::getsockname);
  return own == address_of(socket, ::getpeername) ? "" : own;
}

std::string interface_towards(const std::string& address) {
  const auto to = numeric_address(address, 9);  // connect() of UDP needs a port, sends nothing
  if (!to) return "";
  const Fd probe(::socket(to->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe ||
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&to->storage), to->size) != 0) {
    return "";
  }
  const std::string from = address_of(probe.get(), ::getsockname);
  ifaddrs* list = nullptr;
  if (from.empty() || ::getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && numeric_text(entry->ifa_addr) == from) return entry->ifa_name;
  }
  return "";
}

}  // namespace oddrank::control

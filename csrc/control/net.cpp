// Sockets, addresses and interfaces, as the kernel shows them.
#include "control/net.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "os/encoding.hpp"
#include "os/error.hpp"

namespace oddrank::control {
namespace {

const char* const kAddressForm =
    "expected ip[,ip...]:port#token, for example 10.0.0.1:29600#any-secret-word";

using Interfaces = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

// Returns none where no descriptor is free.
Interfaces interfaces() {
  ifaddrs* list = nullptr;
  return {::getifaddrs(&list) == 0 ? list : nullptr, ::freeifaddrs};
}

using AskedEnd = int (*)(int, sockaddr*, socklen_t*);

std::string address_of(int socket, AskedEnd end) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return end(socket, address, &size) == 0 ? numeric_text(address) : "";
}

}  // namespace

std::optional<SocketAddress> numeric_address(const std::string& host, std::uint16_t port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    address.storage.ss_family = AF_INET;
    address.size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    address.storage.ss_family = AF_INET6;
    address.size = sizeof *v6;
  } else {
    return std::nullopt;
  }
  v4->sin_port = htons(port);  // sin6_port has the same offset
  return address;
}

std::string numeric_text(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    bytes = &v6;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      in_addr v4{};
      std::memcpy(&v4, &v6.s6_addr[12], sizeof v4);
      return ::inet_ntop(AF_INET, &v4, text.data(), text.size()) == nullptr ? "" : text.data();
    }
  }
  if (bytes == nullptr ||
      ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr) {
    return {};
  }
  return text.data();
}

std::string RootAddress::text() const {
  std::string joined;
  for (const std::string& host : hosts) joined += (joined.empty() ? "" : ",") + host;
  return joined + ":" + std::to_string(port) + "#" + token;
}

RootAddress RootAddress::parse(const std::string& text) {
  RootAddress address;
  const std::size_t hash = text.find('#');
  const std::size_t colon = text.rfind(':', hash);
  if (hash == std::string::npos || colon == std::string::npos || hash + 1 == text.size() ||
      text.size() - hash > 128) {
    throw Error("root address \"" + text.substr(0, hash) + "\": " + kAddressForm);
  }
  address.token = text.substr(hash + 1);
  const char* const end = text.data() + hash;
  const auto [stop, bad] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (bad != std::errc{} || stop != end || address.port == 0) {
    throw Error("root address \"" + text.substr(0, hash) + "\": bad port; " + kAddressForm);
  }
  for (std::size_t at = 0; at <= colon && address.hosts.size() < 64;) {
    const std::size_t comma = std::min(text.find(',', at), colon);
    std::string host = text.substr(at, comma - at);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    if (!numeric_address(host, 1)) {
      throw Error("root address \"" + text.substr(0, hash) + "\": \"" + host +
                  "\" is not a numeric address; " + kAddressForm);
    }
    address.hosts.push_back(host);
    at = comma + 1;
  }
  return address;
}

std::vector<SocketAddress> RootAddress::resolve() const {
  std::vector<SocketAddress> all;
  for (const std::string& host : hosts) {
    if (auto address = numeric_address(host, port)) all.push_back(*address);
  }
  return all;
}

std::vector<std::string> interface_addresses(const std::string& first) {
  std::vector<std::string> found;
  std::vector<std::string> later;
  std::vector<std::string> loopback;
  if (numeric_address(first, 0)) found.push_back(first);
  const Interfaces list = interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::string text = numeric_text(entry->ifa_addr);
    if (text.empty() || text.rfind("fe80", 0) == 0) continue;  // link-local needs a scope
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0) {
      loopback.push_back(text);
    } else {
      (entry->ifa_addr->sa_family == AF_INET ? found : later).push_back(text);
    }
  }
  found.insert(found.end(), later.begin(), later.end());
  if (found.empty()) found = loopback;
  if (found.empty()) found.emplace_back("127.0.0.1");
  std::vector<std::string> unique;
  for (const std::string& host : found) {
    if (std::find(unique.begin(), unique.end(), host) == unique.end()) unique.push_back(host);
  }
  unique.resize(std::min<std::size_t>(unique.size(), 32));
  return unique;
}

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
  const Interfaces list = interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const bool is_it = entry->ifa_addr != nullptr && numeric_text(entry->ifa_addr) == from;
    if (is_it && !from.empty()) return entry->ifa_name;
  }
  return "";
}

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw_errno("getrandom");
  }
  std::string text;
  for (const unsigned char byte : bytes) append_hex(byte, text);
  return text;
}

void tune_connection(int socket, int silence_ms) noexcept {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
}

bool Channel::send(FrameKind kind, std::string_view payload) {
  unsent_ += encode(kind, payload);
  return flush();
}

bool Channel::unreachable() const noexcept {
  return error_ == ETIMEDOUT || error_ == EHOSTUNREACH || error_ == ENETUNREACH ||
         error_ == ENETDOWN;
}

bool Channel::flush() {
  while (wants_write()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data() + sent_, unsent_.size() - sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      error_ = errno;
      return false;
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  std::string().swap(unsent_);
  sent_ = 0;
  return true;
}

bool Channel::receive() {
  // On the stack and uninitialised: as thread_local it would cost every thread of the process.
  std::array<char, std::size_t{64} << 10> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  // Bounded: one busy peer must neither starve the others nor fill the memory.
  for (int turn = 0; turn < 16; ++turn) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      error_ = errno;
      return false;
    }
    if (got == 0) return false;
    reader_.feed(buffer.data(), static_cast<std::size_t>(got));
    if (reader_.broken()) return false;
    if (static_cast<std::size_t>(got) < buffer.size()) return true;
  }
  return true;
}

}  // namespace oddrank::control

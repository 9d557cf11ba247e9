// One reverse lookup of this host's own address, in a detached thread.
#include "control/resolver.hpp"

#include <netdb.h>

#include <array>
#include <system_error>
#include <thread>

#include "control/net.hpp"
#include "os/clock.hpp"

namespace oddrank::control {

void measure_resolver(Page& page) {
  const auto address = numeric_address(interface_addresses("").front(), 0);
  if (!address) return;
  page.resolver_started.store(monotonic_ns());
  try {
    // The page is never unmapped: the thread may return at any time.
    std::thread([&page, where = *address] {
      std::array<char, NI_MAXHOST> name{};
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&where.storage), where.size, name.data(),
                    name.size(), nullptr, 0, 0);
      page.resolver_answered.store(monotonic_ns());
    }).detach();
  } catch (const std::system_error&) {
    page.resolver_started.store(0);  // no thread, no measurement
  }
}

}  // namespace oddrank::control

// The addresses and interfaces towards other hosts, as sockets of this host show them.
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <poll.h>
#include <sys/resource.h>

#include "../patience.hpp"
#include "control/net.hpp"
#include "listener.hpp"

namespace oddrank::control {
namespace {

// Connects over an address of this host; returns the address that the acceptor sees.
std::string reached_over(const std::string& host) {
  const Fd listener = listen_on(0);
  const auto to = numeric_address(host, port_of(listener));
  const Fd peer(::socket(to->storage.ss_family, SOCK_STREAM, 0));
  if (::connect(peer.get(), reinterpret_cast<const sockaddr*>(&to->storage), to->size) != 0) {
    return "not reached";
  }
  pollfd entry{listener.get(), POLLIN, 0};
  ::poll(&entry, 1, patience::limit_ms());
  return reached_at(Fd(::accept(listener.get(), nullptr, nullptr)).get());
}

TEST(Net, connections_within_a_host_tell_no_address_for_others) {
  EXPECT_EQ(reached_over("127.0.0.1"), "");
  for (const std::string& own : interface_addresses("")) EXPECT_EQ(reached_over(own), "") << own;
}

TEST(Net, interface_to_an_address_of_this_host_leaves_by_the_interface_that_has_it) {
  EXPECT_EQ(interface_towards("127.0.0.1"), "lo");
  for (const std::string& own : interface_addresses("")) EXPECT_NE(interface_towards(own), "");
  for (const char* none : {"node0", ""}) EXPECT_EQ(interface_towards(none), "") << "no number";
}

TEST(Net, addresses_of_a_host_that_can_list_no_interfaces_are_numeric_all_the_same) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{0, files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  ifaddrs* list = nullptr;
  const int listed = ::getifaddrs(&list);
  const std::vector<std::string> of_name = interface_addresses("node1");
  const std::vector<std::string> of_number = interface_addresses("10.0.0.1");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  ASSERT_NE(listed, 0);
  EXPECT_EQ(of_name, std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(of_number, std::vector<std::string>{"10.0.0.1"});
}

}  // namespace
}  // namespace oddrank::control

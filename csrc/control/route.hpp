// Finds the addresses and interfaces towards other hosts from connections, never from names: a
// host's own name is often 127.0.1.1 in /etc/hosts, and in containers it may not resolve.
#pragma once

#include <string>

namespace oddrank::control {

// Returns this end's address of a connection; "" if the peer is on this host.
std::string reached_at(int socket);
// Returns the interface that packets to this numeric address leave from; "" if unknown.
std::string interface_towards(const std::string& address);

}  // namespace oddrank::control

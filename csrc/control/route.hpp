// Which way leads to the other hosts: told by connections, never by names. A host's own name is
// 127.0.1.1 in many an /etc/hosts, and in containers nothing at all.
#pragma once

#include <string>

namespace oddrank::control {

// This end's address of a connection that comes from another host; "" where it is from this one.
std::string reached_at(int socket);
// The interface that has the address from which packets to this numeric one leave; "" where that
// can't be told.
std::string interface_towards(const std::string& address);

}  // namespace oddrank::control

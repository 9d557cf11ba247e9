// The rendezvous file, where a host's guards read the root's address once one worker knows it.
#pragma once

#include <string>

namespace oddrank::control {

// Returns the address in the file; "" if there is none. Refuses a file of another user or one that
// others may read or write: its text contains the job's secret.
std::string read_rendezvous_file(const std::string& path);
// Removes the file, then its folder if that is empty.
void remove_rendezvous_file(const std::string& path) noexcept;

}  // namespace oddrank::control

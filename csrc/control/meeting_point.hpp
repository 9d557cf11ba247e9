// A file on one host by which its guards learn the root's address from the first worker that knows.
#pragma once

#include <string>

namespace oddrank::control {

// The address in the file; "" while there is none. Only a file that belongs to this user, and that
// nobody else may read or write, counts: its text is the job's secret.
std::string read_meeting_point(const std::string& path);
// The file, and its folder if that is empty then.
void remove_meeting_point(const std::string& path) noexcept;

}  // namespace oddrank::control

// Builds the messages of system errors.
#include "os/error.hpp"

#include <cerrno>
#include <system_error>

namespace oddrank {

SystemError::SystemError(const std::string& what, int number)
    : Error(what + ": " + std::generic_category().message(number)), number_(number) {}

void throw_errno(const std::string& what) { throw SystemError(what, errno); }

}  // namespace oddrank

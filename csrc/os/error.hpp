// The one exception of oddrank's C++ code and the checks that throw it.
// Cold paths only: hot paths are noexcept and count their failures.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace oddrank {

// Maps to oddrank.OddrankError in Python. The message names the failure, its object, the cause and
// the remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A system call that failed; errno is kept so that callers can decide. Maps to
// oddrank.OddrankError.
class SystemError : public Error {
 public:
  // `what` names the call and its object ("open /dev/shm/x"); the text of `number` is appended.
  SystemError(const std::string& what, int number)
      : Error(what + ": " + std::generic_category().message(number)), number_(number) {}
  int number() const noexcept { return number_; }

 private:
  int number_;
};

// Throws SystemError with the current errno.
[[noreturn]] inline void throw_errno(const std::string& what) { throw SystemError(what, errno); }

}  // namespace oddrank

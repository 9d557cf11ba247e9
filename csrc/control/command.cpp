// Runs a command and reads what it prints.
#include "control/command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "control/wire.hpp"

namespace oddrank::control {

void Command::start(const std::vector<std::string>& words, std::int64_t until_ns) {
  std::array<int, 2> pipe{};
  if (words.empty() || ::pipe2(pipe.data(), O_CLOEXEC) != 0) return;
  output_.reset(pipe[0]);
  const Fd theirs(pipe[1]);
  until_ns_ = until_ns;
  text_.clear();
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(theirs.get(), STDOUT_FILENO);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

std::optional<std::string> Command::take(std::int64_t now) {
  if (!output_) return std::nullopt;
  pollfd entry{output_.get(), POLLIN, 0};
  bool open = now < until_ns_;
  while (open && ::poll(&entry, 1, 0) > 0) {
    std::array<char, 4096> text{};
    const ssize_t got = ::read(output_.get(), text.data(), text.size());
    open = got > 0 && text_.size() < kSmallFrame;
    if (got > 0) text_.append(text.data(), static_cast<std::size_t>(got));
  }
  if (open) return std::nullopt;
  output_.reset();
  return std::exchange(text_, {});
}

}  // namespace oddrank::control

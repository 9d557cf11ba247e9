// oddrank-guard: the program that `oddrank run` starts beside each rank. It watches that process,
// tells the job's root what changes, and ends soon after it. It prints nothing, but for one line
// about a wrong option.
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "control/process.hpp"
#include "os/error.hpp"
#include "run/watcher.hpp"

namespace oddrank::run {
namespace {

constexpr int kUsage = 2;
constexpr int kFailed = 1;
constexpr std::int64_t kMostQuietMs = std::int64_t{1000} * 3600 * 24;
// Holds the root's address and the job's secret: other users may read a command line.
constexpr const char* kAddress = "ODDRANK_CONTROL_ADDR";

struct Arguments {
  pid_t pid = 0;
  WatchOptions watch;
};

template <class Number>
void set(Number& to, const std::string& name, std::string_view text, std::int64_t least,
         std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    throw Error(name + " " + std::string(text) + ": it takes a number from " +
                std::to_string(least) + " to " + std::to_string(most));
  }
  to = static_cast<Number>(value);
}

// The guard leaves its working directory.
std::string absolute(const std::string& name, std::string_view path) {
  if (!path.starts_with('/')) {
    throw Error(name + " " + std::string(path) + ": it takes an absolute path");
  }
  return std::string(path);
}

// --record and --fetcher add one value each time.
Arguments parse(int count, char** values) {
  constexpr std::int64_t kMost = INT32_MAX;
  Arguments to;
  WatchOptions& watch = to.watch;
  using Take = std::function<void(const std::string&, std::string_view)>;
  const auto number = [](auto& field, std::int64_t least, std::int64_t most) -> Take {
    return [&field, least, most](const std::string& name, std::string_view text) {
      set(field, name, text, least, most);
    };
  };
  const auto text = [](std::string& field) -> Take {
    return [&field](const std::string&, std::string_view value) { field = value; };
  };
  std::int64_t quiet_ms = watch.quiet_ns / 1'000'000;
  const std::map<std::string, Take> options = {
      {"--pid", number(to.pid, 1, kMost)},
      {"--rank", number(watch.rank, 0, kMost)},
      {"--world", number(watch.world, 1, kMost)},
      {"--local-rank", number(watch.local_rank, 0, kMost)},
      {"--local-world", number(watch.local_world, 1, kMost)},
      {"--node", number(watch.node, 0, kMost)},
      {"--quiet-ms", number(quiet_ms, 1, kMostQuietMs)},
      {"--host", text(watch.host)},
      {"--launcher", text(watch.launcher)},
      {"--record",
       [&watch](const std::string& name, std::string_view value) {
         watch.records.push_back(absolute(name, value));
       }},
      {"--rendezvous",
       [&watch](const std::string& name, std::string_view value) {
         watch.rendezvous_file = absolute(name, value);
       }},
      {"--fetcher",
       [&watch](const std::string&, std::string_view value) { watch.fetcher.emplace_back(value); }},
  };
  for (int i = 1; i < count; i += 2) {
    const std::string name = values[i];
    const auto option = options.find(name);
    if (option == options.end()) {
      throw Error("there is no option " + name + ": `oddrank run` starts this program");
    }
    if (i + 1 == count) throw Error(name + " has no value");
    option->second(name, values[i + 1]);
  }
  if (to.pid == 0) throw Error("--pid is missing: `oddrank run` starts this program");
  watch.quiet_ns = quiet_ms * 1'000'000;
  if (const char* address = std::getenv(kAddress)) watch.address = address;
  return to;
}

// Leaves the process that started this one, its session, folder, descriptors and signals.
void detach(int kept) {
  const pid_t child = ::fork();
  if (child < 0) throw_errno("fork");
  if (child > 0) ::_exit(0);
  ::setsid();
  [[maybe_unused]] const int moved = ::chdir("/");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; null >= 0 && fd <= 2; ++fd) ::dup2(null, fd);
  control::close_descriptors_but(kept, -1);
  control::reset_signals();
}

int guard(int count, char** values) {
  // No descriptor of ours may be 0 to 2: those are replaced later.
  for (int fd = 0; fd >= 0 && fd <= 2;) fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  try {
    Arguments arguments = parse(count, values);
    // Before the fork: the process that started this one waits for it, so that its worker still is
    // who it is.
    control::ProcessWatch worker(arguments.pid);
    if (worker.start_time() == 0) {
      throw Error("--pid " + std::to_string(arguments.pid) + ": there is no such process");
    }
    detach(worker.fd());
    try {
      Watcher(std::move(arguments.watch), std::move(worker)).run();
    } catch (const std::exception&) {
      ::_exit(kFailed);  // nobody reads a message
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "oddrank-guard: %s\n", error.what());
    return kUsage;
  }
  return 0;
}

}  // namespace
}  // namespace oddrank::run

int main(int count, char** values) { return oddrank::run::guard(count, values); }

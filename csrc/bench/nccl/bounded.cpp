// Calls that may never return, waited for with a deadline.
#include "bench/nccl/bounded.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace oddrank::nccl {

bool finished_by(Deadline deadline, std::function<void()> call) {
  // A promise, not std::async: the future of async waits for its thread.
  std::promise<void> promise;
  auto done = promise.get_future();
  try {
    std::thread([call = std::move(call), promise = std::move(promise)]() mutable {
      try {
        call();
        call = nullptr;  // what it owns goes before anybody is told
        promise.set_value();
      } catch (...) {
        call = nullptr;
        promise.set_exception(std::current_exception());
      }
    }).detach();
  } catch (const std::system_error& error) {
    throw Error(std::string("no thread can be started: ") + error.what());
  }
  const auto left =
      std::chrono::nanoseconds(std::max<std::int64_t>(0, deadline.ns() - monotonic_ns()));
  if (done.wait_for(left) != std::future_status::ready) return false;
  done.get();
  return true;
}

}  // namespace oddrank::nccl

// Chooses the best exchange and schedules the next one.
#include "control/clock_exchange.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "os/proc.hpp"

namespace oddrank::control {
namespace {
constexpr int kBurst = 4;
constexpr int kExchanges = 4 * kBurst;
constexpr std::int64_t kGapNs = 2'000'000;  // at least; longer than a busy process holds a core
// Time between two exchanges at the root, which answers each in a few microseconds.
constexpr std::int64_t kPaceNs = 20'000;
}  // namespace

std::string which_clock() {
  const std::string boot = boot_id();
  if (boot.empty()) return {};
  std::array<char, 64> space{};  // stays empty before Linux 5.6, which has no time namespaces
  const ssize_t size = ::readlink("/proc/self/ns/time", space.data(), space.size());
  return boot + " " +
         std::string(space.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
}

void ClockExchange::ask(const ClockQuestion& question, std::int64_t now) {
  question_ = question;
  open_ = true;
  enough_ = false;
  awaited_ = 0;
  heard_ = 0;
  shortest_ns_ = kNone;
  // If the time is too short for this world size, shorten the gap: the root is busier and the error
  // larger, but every rank gets some exchanges.
  const std::int64_t most = std::max<std::int64_t>(question.deadline_ns - now, 0) / 4;
  gap_ns_ = std::min(std::max(kGapNs, world_ * kPaceNs * kBurst), most);
  next_ns_ = now + (world_ > 1 ? gap_ns_ / world_ * rank_ : 0);
}

std::uint32_t ClockExchange::begin(std::int64_t now) noexcept {
  sent_ns_ = now;
  awaited_ = ++last_number_;
  if (awaited_ == 0) awaited_ = ++last_number_;
  return awaited_;
}

void ClockExchange::hear(const ClockReading& reading, std::int64_t now) {
  if (!open_ || awaited_ == 0 || reading.number != awaited_) return;
  awaited_ = 0;
  ++heard_;
  next_ns_ = heard_ % kBurst == 0 ? now + gap_ns_ : now;
  const std::int64_t round_trip = std::max<std::int64_t>(now - sent_ns_, 0);
  if (round_trip < shortest_ns_) {
    shortest_ns_ = round_trip;
    offset_ns_ = reading.ns - (sent_ns_ + round_trip / 2);
  }
  const std::int64_t error = (round_trip + 1) / 2;
  const bool same = question_.shortcut && !own_clock_.empty() && reading.clock == own_clock_;
  // Check it against the reading: cloned virtual machines may share a boot id.
  if (same && offset_ns_ >= -error && offset_ns_ <= error) {
    shortest_ns_ = offset_ns_ = 0;
    enough_ = true;
  }
  enough_ = enough_ || heard_ >= kExchanges;
}

std::optional<ClockAnswer> ClockExchange::answer(std::int64_t now, bool is_last) {
  if (!open_ || !(enough_ || is_last || now >= question_.deadline_ns)) return std::nullopt;
  open_ = false;
  awaited_ = 0;
  ClockAnswer answer;
  answer.number = question_.number;
  if (heard_ == 0) {
    answer.trouble = "no reading came";
  } else {
    answer.offset_ns = offset_ns_;
    answer.error_ns = shortest_ns_ / 2 + shortest_ns_ % 2;
  }
  return answer;
}

std::int64_t ClockExchange::wait_ns(std::int64_t now) const noexcept {
  if (!open_) return kNone;
  const std::int64_t next = awaits_reply() ? kNone : next_ns_;
  return std::max<std::int64_t>(std::min(next, question_.deadline_ns) - now, 0);
}

}  // namespace oddrank::control

// Which exchange counts, and when the next one begins.
#include "control/clock_exchange.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace oddrank::control {
namespace {
constexpr int kBurst = 4;
constexpr int kExchanges = 4 * kBurst;
constexpr std::int64_t kGapNs = 2'000'000;  // at least: longer than a busy process holds a core
// The root answers one in a few microseconds: at this pace it has time for everything else.
constexpr std::int64_t kPaceNs = 20'000;
}  // namespace

std::string which_clock() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  if (boot.empty() || boot.size() > 64) return {};
  std::array<char, 64> space{};  // none before Linux 5.6: then there is one clock for all
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
  // Where the time is short for such a world the root is busy and the error larger, but every rank
  // gets some exchanges.
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
  // Believed only where the reading does not contradict it: boot ids are copied with machines.
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

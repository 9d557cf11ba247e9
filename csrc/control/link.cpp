// Dials the root and notices when it falls silent.
#include "control/link.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "control/wire.hpp"
#include "os/clock.hpp"

namespace oddrank::control {
namespace {
constexpr std::int64_t kNextTryNs = 300 * kMs;
constexpr std::int64_t kTryNs = 4'000 * kMs;
constexpr std::int64_t kRefusedNs = 5'000 * kMs;

std::string text_of(int number) { return std::generic_category().message(number); }
}  // namespace

Hello GuardIdentity::hello(const ProcessWatch& worker, pid_t launcher_pid,
                           std::uint32_t remaining_ms) const {
  constexpr std::size_t kLongestHost = 200;
  Hello made;
  static_cast<Identity&>(made) = *this;
  made.host.resize(std::min(made.host.size(), kLongestHost));
  made.launcher_pid = launcher_pid;
  made.pid = worker.pid();
  made.start_time = worker.start_time();
  made.remaining_ms = remaining_ms;
  return made;
}

void Link::dial(const RootAddress& address, Hello hello, bool published) {
  if (has_address()) return;
  addresses_ = address.resolve();
  refused_.assign(addresses_.size(), false);
  hello_ = std::move(hello);
  token_ = address.token;
  published_ = published;
  where_ = address.text().substr(0, address.text().find('#'));
  trouble_ = "no answer from " + where_;
}

void Link::start_try(std::int64_t now) {
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    const std::size_t address = (next_ + i) % addresses_.size();
    const bool open = std::any_of(tries_.begin(), tries_.end(),
                                  [&](const Try& one) { return one.address == address; });
    if (open) continue;
    next_ = address + 1;
    last_start_ = now;
    const SocketAddress& to = addresses_[address];
    Fd socket(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return;
    tune_connection(socket.get(), static_cast<int>(kTryNs / kMs));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) != 0 &&
        errno != EINPROGRESS) {
      trouble_ = "no answer from " + where_ + " (" + text_of(errno) + ")";
      refused_[address] = true;
      return;
    }
    Try one{address, Channel(std::move(socket), kSmallFrame), now, false, random_token(), false};
    tries_.push_back(std::move(one));
    return;
  }
}

void Link::lose(const std::string& why, bool is_silent) {
  if (up_ && is_silent) {
    parting_ = true;
    hello_.parting = why;
    next_ = tries_.front().address;
    last_start_ = 0;
    silent_.splice(silent_.end(), tries_);
  }
  lost_ = true;
  up_ = false;
  trouble_ = why;
  tries_.clear();
}

void Link::lose_channel(const Channel& channel) {
  const bool is_silent = channel.unreachable();
  lose(is_silent ? "silent (" + text_of(channel.error()) + ")" : "its connection was closed",
       is_silent);
}

void Link::tick(std::int64_t now) {
  if (last_tick_ != 0 && now - last_tick_ > longest_turn_ns_) last_heard_ += now - last_tick_;
  last_tick_ = now;
  // A root that still reads a long result is alive: its pong waits behind the result.
  const std::size_t unsent = up_ ? tries_.front().channel.unsent() : 0;
  if (unsent < unsent_) last_heard_ = now;
  unsent_ = unsent;
  if (up_ && now - last_heard_ > welcome_.silence_ms * kMs) {
    lose("silent for " + std::to_string((now - last_heard_) / kMs) + " ms", true);
  }
  if (!dialing() && !parting_) return;
  tries_.remove_if([&](const Try& one) {
    const bool is_silent = now - one.started > kTryNs;
    if (is_silent) refused_[one.address] = false;
    return is_silent;
  });
  if (now - last_start_ >= kNextTryNs) start_try(now);
  if (parting_) return;
  if (std::find(refused_.begin(), refused_.end(), false) != refused_.end()) {
    refused_since_ = 0;
    return;
  }
  if (refused_since_ == 0) refused_since_ = now;
  const bool may_answer =
      std::any_of(tries_.begin(), tries_.end(), [](const Try& one) { return one.connected; });
  if (published_ && !may_answer && now - refused_since_ > kRefusedNs) lose(trouble_, false);
}

void Link::add_polls(std::vector<pollfd>& polls) const {
  for (const Try& one : tries_) {
    const bool writes = !one.connected || one.channel.wants_write();
    polls.push_back({one.channel.fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  }
}

// Returns false once this try has failed.
bool Link::work_try(Try& one, std::vector<Frame>& frames) {
  if (!one.connected) {
    pollfd entry{one.channel.fd(), POLLOUT, 0};
    if (::poll(&entry, 1, 0) <= 0) return true;
    int number = 0;
    socklen_t size = sizeof number;
    ::getsockopt(one.channel.fd(), SOL_SOCKET, SO_ERROR, &number, &size);
    if (number != 0) {
      trouble_ = "no answer from " + where_ + " (" + text_of(number) + ")";
      refused_[one.address] = number != ETIMEDOUT;
      return false;
    }
    one.connected = true;
    Knock knock;
    knock.nonce = one.nonce;
    if (!one.channel.send(FrameKind::kKnock, pack(knock))) return false;
  }
  const bool open = one.channel.flush() && one.channel.receive();
  while (auto frame = one.channel.next()) {
    if (one.proven) {
      frames.push_back(std::move(*frame));
    } else if (!check_proof(one, *frame)) {
      refused_[one.address] = true;
      trouble_ = "no root of this job at " + where_;
      return false;
    }
  }
  if (!open && !up_) {
    refused_[one.address] = true;
    trouble_ = "no welcome from " + where_ + " (closed)";
  }
  return open && !one.channel.broken();
}

// The token itself is never sent, and no frame counts before the peer has proved that it knows it.
bool Link::check_proof(Try& one, const Frame& frame) {
  if (frame.kind != FrameKind::kProof) return false;
  const auto proof = unpack<Proof>(frame.payload);
  if (!proof || !same_secret(proof->proof, root_proof(token_, one.nonce, proof->nonce))) {
    return false;
  }
  one.proven = true;
  refused_[one.address] = false;
  hello_.proof = guard_proof(token_, one.nonce, proof->nonce);
  return one.channel.send(FrameKind::kHello, pack(hello_));
}

// Sends the parting. The root has read it once it closes a proven connection.
void Link::work_partings() {
  for (auto one = tries_.begin(); one != tries_.end();) {
    std::vector<Frame> none;
    if (work_try(*one, none)) {
      ++one;
    } else if (one->proven) {
      parting_ = false;
      tries_.clear();
      silent_.clear();
      return;
    } else {
      one = tries_.erase(one);
    }
  }
}

std::vector<Frame> Link::work(std::int64_t now) {
  std::vector<Frame> frames;
  if (parting_) work_partings();
  if (lost_) return frames;
  for (auto one = tries_.begin(); one != tries_.end();) {
    std::vector<Frame> fresh;
    const bool open = work_try(*one, fresh);
    if (!fresh.empty()) last_heard_ = now;
    if (!up_ && !fresh.empty() && fresh.front().kind == FrameKind::kWelcome) {
      if (const auto welcome = unpack<Welcome>(fresh.front().payload)) {
        welcome_ = *welcome;
        up_ = true;
        tune_connection(one->channel.fd(), static_cast<int>(welcome_.silence_ms));
        fresh.erase(fresh.begin());
      }
    }
    // A root refuses a hello (its rank is taken) by an END without a welcome.
    const bool refused = !up_ && !fresh.empty() && fresh.front().kind == FrameKind::kEnd;
    if (up_ || refused) frames.insert(frames.end(), fresh.begin(), fresh.end());
    if (up_) {
      if (!open) {
        lose_channel(one->channel);
      } else {
        tries_.splice(tries_.begin(), tries_, one);
        tries_.erase(std::next(tries_.begin()), tries_.end());
      }
      return frames;
    }
    one = open ? std::next(one) : tries_.erase(one);
  }
  return frames;
}

void Link::send(FrameKind kind, std::string_view payload) {
  if (up_ && !tries_.front().channel.send(kind, payload)) lose_channel(tries_.front().channel);
}

}  // namespace oddrank::control

// Names of process states, and the proofs of guards and root.
#include "control/messages.hpp"

#include "control/hmac.hpp"

namespace oddrank::control {

const char* name_of(Liveness life) noexcept {
  switch (life) {
    case Liveness::kRunning:
      return "running";
    case Liveness::kStopped:
      return "stopped";
    case Liveness::kZombie:
      return "zombie";
    case Liveness::kDead:
      return "dead";
    case Liveness::kUninterruptible:
      return "uninterruptible";
  }
  return "running";
}

namespace {
// Includes the role, so that neither side accepts its own proof sent back.
std::string proof(std::string_view role, std::string_view token, std::string_view guard_nonce,
                  std::string_view root_nonce) {
  std::string message(role);
  message.append("|").append(guard_nonce).append("|").append(root_nonce);
  return hmac_sha256(token, message);
}
}  // namespace

std::string root_proof(std::string_view token, std::string_view guard_nonce,
                       std::string_view root_nonce) {
  return proof("oddrank root", token, guard_nonce, root_nonce);
}

std::string guard_proof(std::string_view token, std::string_view guard_nonce,
                        std::string_view root_nonce) {
  return proof("oddrank guard", token, guard_nonce, root_nonce);
}

}  // namespace oddrank::control

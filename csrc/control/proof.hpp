// Guards and root prove that they know the job's token, without sending it: HMAC-SHA256 (RFC 2104,
// FIPS 180-4) of both sides' nonces.
#pragma once

#include <string>
#include <string_view>

namespace oddrank::control {

// Returns the 32 bytes of the code.
std::string hmac_sha256(std::string_view key, std::string_view message);

// Compares in a time that depends only on the sizes.
bool same_secret(std::string_view a, std::string_view b) noexcept;

std::string root_proof(std::string_view token, std::string_view guard_nonce,
                       std::string_view root_nonce);
std::string guard_proof(std::string_view token, std::string_view guard_nonce,
                        std::string_view root_nonce);

}  // namespace oddrank::control

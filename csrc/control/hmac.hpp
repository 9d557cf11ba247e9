// HMAC-SHA256 (RFC 2104, FIPS 180-4): guards and root prove with it that they know the job's token.
#pragma once

#include <string>
#include <string_view>

namespace oddrank::control {

// Returns the 32 bytes of the code.
std::string hmac_sha256(std::string_view key, std::string_view message);

// Compares in a time that depends only on the sizes.
bool same_secret(std::string_view a, std::string_view b) noexcept;

}  // namespace oddrank::control

// The forms of launchers' prefixes. Each function takes its form from the front of a text, notes
// what it says, and returns how many bytes it takes: 0 if the text begins otherwise. forms.cpp
// shows what each looks like; the table in prefixes.cpp says where each is tried.
#pragma once

#include <cstddef>
#include <string_view>

#include "logs/prefixes.hpp"

namespace oddrank::logs::forms {

constexpr std::size_t kTagTime = 24;  // bytes of the time in front of mpirun's tag

std::size_t torch_rank(std::string_view text, Prefix& who);
std::size_t oddrank_run(std::string_view text, Prefix& who);
std::size_t torchrun(std::string_view text, Prefix& who);
std::size_t mpirun(std::string_view text, Prefix& who);
std::size_t mpirun_time(std::string_view text, Prefix& who);
std::size_t mpi_message(std::string_view text, Prefix& who);
std::size_t kubectl(std::string_view text, Prefix& who);
std::size_t bare_colour(std::string_view text, Prefix& who);
std::size_t ray(std::string_view text, Prefix& who);
std::size_t srun(std::string_view text, Prefix& who);
std::size_t stamp(std::string_view text, Prefix& who);
std::size_t host(std::string_view text, Prefix& who);
std::size_t syslog(std::string_view text, Prefix& who);
std::size_t compose(std::string_view text, Prefix& who);
std::size_t stream(std::string_view text, Prefix& who);

}  // namespace oddrank::logs::forms

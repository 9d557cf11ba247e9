// Lines of Docker's json-file driver: {"log":"text\n","stream":"stderr","time":"2026-..."}.
#pragma once

#include <string>
#include <string_view>

namespace oddrank::logs {

// Puts what a container wrote into `text`, its time in front. Returns false for other lines.
bool unpack_docker(std::string_view line, std::string& text);

}  // namespace oddrank::logs

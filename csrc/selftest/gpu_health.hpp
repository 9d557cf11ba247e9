// What NVML tells of one GPU's health, settings and error counters. Needs no CUDA.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace oddrank::selftest {

// numbers: what could be read, by name (a row of the tables in the .cpp); unreadable: why not, by
// the same names.
struct Readings {
  std::map<std::string, std::uint64_t> numbers;
  std::map<std::string, std::string> unreadable;
};

struct GpuHealth {
  std::string name;  // of a MIG slice with its profile
  bool slice = false;
  std::string lost;  // NVML's words where the GPU does not answer any more; then nothing else
  Readings readings;
  // Process ids as the driver numbers them, which knows no container's; none: not readable.
  std::optional<std::vector<unsigned>> processes;
  std::optional<std::vector<unsigned>> mps_clients;
};

// Counters that only grow, of the GPU and of each of its NVLinks that are up.
struct GpuCounters {
  std::string lost;
  Readings gpu;
  std::map<unsigned, Readings> links;
};

// uuid: as CUDA has it, without "GPU-" or "MIG-". file: NVML's, or a name that the loader knows.
// Throw Error: the library, the driver or the GPU is not there.
GpuHealth gpu_health(const std::string& uuid, const std::string& file);
GpuCounters gpu_counters(const std::string& uuid, const std::string& file);

}  // namespace oddrank::selftest

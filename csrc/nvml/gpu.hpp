// One GPU's health, settings, error counters and links, read from NVML. Needs no CUDA.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace oddrank::nvml {

// `numbers`: the values by name (a row of the tables in the .cpp). `unreadable`: NVML's reason for
// each value that is missing there.
struct Readings {
  std::map<std::string, std::uint64_t> numbers;
  std::map<std::string, std::string> unreadable;
};

struct GpuHealth {
  std::string name;  // a MIG slice's has its profile
  bool slice = false;
  std::string lost;  // NVML's text if the GPU no longer answers; all else is empty then
  Readings readings;
  // Process ids outside containers; empty if not readable.
  std::optional<std::vector<unsigned>> processes;
  std::optional<std::vector<unsigned>> mps_clients;
};

// Counters that only grow: of the GPU and of each NVLink that is up.
struct GpuCounters {
  std::string lost;
  Readings gpu;
  std::map<unsigned, Readings> links;
};

// `uuid`: CUDA's, without "GPU-" or "MIG-". `file`: NVML's path, or a name for the loader. Both
// throw Error if the library, the driver or the GPU is missing.
GpuHealth gpu_health(const std::string& uuid, const std::string& file);
GpuCounters gpu_counters(const std::string& uuid, const std::string& file);

// The links to other GPUs and to the host. A number is 0 if there is none or the driver does not
// report it. `fabric` names the NVLink switch fabric and its clique: the same text on all its GPUs,
// on any host; empty if the GPU belongs to no fabric that spans hosts.
struct GpuLinks {
  unsigned nvlinks = 0;      // active links
  unsigned nvlink_MBps = 0;  // per link and direction
  unsigned pcie = 0;         // newest generation that GPU and host share
  unsigned pcie_width = 0;   // lanes in use
  std::string fabric;
};

// The same for `uuid` "GPU-...". A MIG slice is no GPU.
GpuLinks gpu_links(const std::string& uuid, const std::string& file);

}  // namespace oddrank::nvml

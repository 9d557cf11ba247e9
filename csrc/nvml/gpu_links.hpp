// The links of a GPU to other GPUs and to its host, read from NVML. Needs no CUDA.
#pragma once

#include <string>

namespace oddrank::nvml {

// A number is 0 if there is none or the driver does not report it. `fabric` names the NVLink switch
// fabric and its clique: the same text on all its GPUs, on any host; empty if the GPU belongs to no
// fabric that spans hosts.
struct GpuLinks {
  unsigned nvlinks = 0;      // active links
  unsigned nvlink_MBps = 0;  // per link and direction
  unsigned pcie = 0;         // newest generation that GPU and host share
  unsigned pcie_width = 0;   // lanes in use
  std::string fabric;
};

// `uuid`: "GPU-...". `file`: the library's path, or a name for the loader. Throws Error if the
// library, the driver or the GPU is missing (a MIG slice is no GPU).
GpuLinks gpu_links(const std::string& uuid, const std::string& file);

}  // namespace oddrank::nvml

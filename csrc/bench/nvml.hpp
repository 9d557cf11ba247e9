// What joins a GPU to others, as the driver's library NVML tells it. Needs no CUDA.
#pragma once

#include <string>

namespace oddrank::bench {

// 0: none, or the driver does not tell. fabric: which NVLink switch fabric and clique of it the GPU
// belongs to, the same text on all its GPUs of whichever host; "" where it belongs to none that
// goes beyond its host.
struct GpuLinks {
  unsigned nvlinks = 0;      // that are active
  unsigned nvlink_MBps = 0;  // of each, one way
  unsigned pcie = 0;         // the newest generation that GPU and host have in common
  unsigned pcie_width = 0;   // lanes in use
  std::string fabric;
};

// uuid: "GPU-...". file: a file, or a name that the loader knows. Throws Error: the library, the
// driver or the GPU is not there (a MIG slice is no GPU), in words.
GpuLinks gpu_links(const std::string& uuid, const std::string& file);

}  // namespace oddrank::bench

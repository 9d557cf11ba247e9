// What the driver and the runtime say about themselves and about the GPUs.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace oddrank::cuda {

struct Device {
  int index;
  std::string name;
  std::string uuid;     // "GPU-..." as nvidia-smi -L prints it
  std::string pci_bus;  // "0000:1b:00.0"
  std::size_t memory_bytes;
  std::array<int, 2> compute_capability;
  int multiprocessors;
};

// The newest CUDA that the driver knows (13000 = 13.0); none where there is no driver.
std::optional<int> driver_version();
// The CUDA runtime that is linked into this module.
int runtime_version();
// 0 where there is a driver but no GPU; throws where there is no driver, or one too old.
int device_count();
// (free, total) bytes of a GPU, of all processes on it; makes its context.
std::pair<std::size_t, std::size_t> memory_info(int device);
// Initialises the driver (a fork after it can't use CUDA), but makes no context on any GPU.
std::vector<Device> devices();

}  // namespace oddrank::cuda

// Versions of the driver and the runtime, and the list of GPUs.
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

// Returns the newest CUDA that the driver knows (13000 = 13.0); empty without a driver.
std::optional<int> driver_version();
// Returns the version of the CUDA runtime in this module.
int runtime_version();
// Returns 0 if the driver sees no GPU. Throws Error if the driver is missing or too old.
int device_count();
// Returns (free, total) bytes of a GPU, shared by all its processes. Creates its context.
std::pair<std::size_t, std::size_t> memory_info(int device);
// Initializes the driver (a fork after it cannot use CUDA), but creates no context on any GPU.
std::vector<Device> devices();

}  // namespace oddrank::cuda

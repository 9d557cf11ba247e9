// The CUDA runtime: its error codes as oddrank::Error with call, code, text, device and rank, and
// with advice where there is one; versions; the GPUs. C++17: included by .cu files.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "os/error.hpp"

namespace oddrank::cuda {

// Sets the rank that this process's errors name.
void set_rank(int rank) noexcept;
// Returns "device 0, rank 3", or the part of it that is known.
std::string place();

// Returns "no CUDA driver: ..." with advice: the reason for cudaErrorInsufficientDriver.
std::string driver_problem();
// Returns "13.0" for CUDA's 13000.
std::string version_text(int version);

// Clears the runtime's last error, so that the next call does not report it again.
// (An error that has broken the context stays: CUDA then needs a new process.)
[[noreturn]] void throw_error(cudaError_t code, const char* call);

inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw_error(code, call);
}

// ODDRANK_CUDA_CHECK(cudaMalloc(&data, bytes)): the message names cudaMalloc.
#define ODDRANK_CUDA_CHECK(call) ::oddrank::cuda::check((call), #call)

// Makes `device` this thread's device. Creates its context, which may take a second.
inline void select_device(int device) { ODDRANK_CUDA_CHECK(cudaSetDevice(device)); }

// Returns this thread's device, -1 if it has none.
inline int current_device() noexcept {
  int device = -1;
  if (cudaGetDevice(&device) == cudaSuccess) return device;
  cudaGetLastError();
  return -1;
}

// Makes `device` this thread's device for a while (-1: leaves it): torch goes on with the one that
// it has chosen.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    if (device >= 0) select_device(device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (before_ >= 0) cudaSetDevice(before_);
  }

 private:
  const int before_ = current_device();
};

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

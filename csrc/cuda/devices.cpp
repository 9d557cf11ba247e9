// Lists the GPUs.
#include "cuda/devices.hpp"

#include <cstdio>

#include "cuda/buffer.hpp"
#include "cuda/check.hpp"

namespace oddrank::cuda {
namespace {

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += hex;
  }
  return text;
}

}  // namespace

std::optional<int> driver_version() {
  int version = 0;
  ODDRANK_CUDA_CHECK(cudaDriverGetVersion(&version));  // no driver: success and 0
  return version == 0 ? std::nullopt : std::optional(version);
}

int runtime_version() {
  int version = 0;
  ODDRANK_CUDA_CHECK(cudaRuntimeGetVersion(&version));
  return version;
}

int device_count() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorNoDevice) {
    cudaGetLastError();
    return 0;
  }
  check(code, "cudaGetDeviceCount");
  return count;
}

std::pair<std::size_t, std::size_t> memory_info(int device) {
  select_device(device);
  std::size_t free = 0, total = 0;
  ODDRANK_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return {free, total};
}

std::vector<Device> devices() {
  std::vector<Device> list;
  const int count = device_count();
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp device{};
    ODDRANK_CUDA_CHECK(cudaGetDeviceProperties(&device, i));
    char pci[32] = "";
    ODDRANK_CUDA_CHECK(cudaDeviceGetPCIBusId(pci, sizeof pci, i));
    list.push_back({i,
                    device.name,
                    uuid_text(device.uuid),
                    pci,
                    device.totalGlobalMem,
                    {device.major, device.minor},
                    device.multiProcessorCount});
  }
  return list;
}

}  // namespace oddrank::cuda

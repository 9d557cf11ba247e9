// Reads the links of a GPU from NVML.
#include "nvml/gpu_links.hpp"

#include <algorithm>
#include <array>

#include "nvml/library.hpp"

namespace oddrank::nvml {
namespace {

constexpr unsigned kSpeedOfNvlinks = 90;  // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
constexpr unsigned char kRegistered = 3;  // NVML_GPU_FABRIC_STATE_COMPLETED

struct FabricInfo {  // nvmlGpuFabricInfo_v2_t
  unsigned version = 0;
  std::array<unsigned char, 16> cluster{};
  Result status = 0;
  unsigned clique = 0;
  unsigned char state = 0;
  unsigned health = 0;
};
constexpr unsigned kFabricVersion = sizeof(FabricInfo) | 2U << 24U;
static_assert(sizeof(FabricInfo) == 36);

// Returns 0 if the driver does not report the number.
unsigned number_or_0(const Library& library, const char* name, Device device) {
  std::uint64_t found = 0;
  return library.number(name, device, &found) == kSuccess ? static_cast<unsigned>(found) : 0;
}

unsigned active_links(const Library& library, Device device) {
  unsigned active = 0;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    bool up = false;
    const Result told = library.link_is_up(device, link, &up);
    if (told == kNotSupported || told == kInvalidArgument) continue;
    library.check(told, "nvmlDeviceGetNvLinkState");
    active += up ? 1 : 0;
  }
  return active;
}

unsigned speed_of_links(const Library& library, Device device) {
  std::uint64_t found = 0;
  const Result told = library.field(device, kSpeedOfNvlinks, 0, &found);
  return told == kSuccess ? static_cast<unsigned>(found) : 0;
}

std::string fabric_of(const Library& library, Device device) {
  FabricInfo info;
  info.version = kFabricVersion;
  const Result told =
      library.call<Result(Device, FabricInfo*)>("nvmlDeviceGetGpuFabricInfoV", device, &info);
  // The cluster is zero if the switches join no other host (NCCL reads it so, too).
  const bool none =
      std::all_of(info.cluster.begin(), info.cluster.end(), [](auto b) { return b == 0; });
  if (told != kSuccess || info.state != kRegistered || info.status != kSuccess || none) return "";
  std::string text;
  for (const unsigned char byte : info.cluster) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text + "." + std::to_string(info.clique);
}

}  // namespace

GpuLinks gpu_links(const std::string& uuid, const std::string& file) {
  const Library library(file);
  Device device = nullptr;
  library.check(library.device_of(uuid, &device), "nvmlDeviceGetHandleByUUID");
  GpuLinks links;
  links.nvlinks = active_links(library, device);
  links.nvlink_MBps = links.nvlinks == 0 ? 0 : speed_of_links(library, device);
  // The current generation falls while a GPU idles; lanes that are missing stay so.
  links.pcie = number_or_0(library, "nvmlDeviceGetMaxPcieLinkGeneration", device);
  links.pcie_width = number_or_0(library, "nvmlDeviceGetCurrPcieLinkWidth", device);
  links.fabric = fabric_of(library, device);
  return links;
}

}  // namespace oddrank::nvml

// Opens libnvidia-ml.so.1 and asks. Its header is not needed: the few declarations here are those
// of nvml.h (CUDA 12.9), whose functions and structures keep their layout for good.
#include "bench/nvml.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/dynlib.hpp"
#include "base/error.hpp"

namespace oddrank::bench {
namespace {

using Result = int;  // nvmlReturn_t
using Handle = struct nvmlDevice_st*;
constexpr Result kSuccess = 0;
constexpr Result kInvalidArgument = 2;
constexpr Result kNotSupported = 3;
constexpr unsigned kMostLinks = 64;       // NVML_NVLINK_MAX_LINKS is 18 today
constexpr unsigned kSpeedOfNvlinks = 90;  // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
constexpr unsigned char kRegistered = 3;  // NVML_GPU_FABRIC_STATE_COMPLETED

struct FieldValue {  // nvmlFieldValue_t
  unsigned id = 0;
  unsigned scope = 0;
  long long timestamp = 0;
  long long latency = 0;
  int type = 0;
  Result result = 0;
  union {
    double real;
    unsigned number;
    unsigned long long bytes;
  } value{};
};

struct FabricInfo {  // nvmlGpuFabricInfo_v2_t
  unsigned version = 0;
  std::array<unsigned char, 16> cluster{};
  Result status = 0;
  unsigned clique = 0;
  unsigned char state = 0;
  unsigned health = 0;
};
constexpr unsigned kFabricVersion = sizeof(FabricInfo) | 2U << 24U;
static_assert(sizeof(FieldValue) == 40 && sizeof(FabricInfo) == 36);

// Between nvmlInit and nvmlShutdown, which count.
class Nvml {
 public:
  explicit Nvml(const std::string& file) {
    std::string why;
    library_ = DynamicLibrary::open(file, &why);
    if (!library_) throw Error("no NVML, the NVIDIA driver's library: " + why);
    check(call<Result()>("nvmlInit_v2"), "nvmlInit_v2");
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (const auto end = library_.find<Result (*)()>("nvmlShutdown")) end();
  }

  // kNotSupported where this driver's library has no such function.
  template <class F, class... Arguments>
  Result call(const char* name, Arguments... arguments) const {
    const auto function = library_.find<F*>(name);
    return function == nullptr ? kNotSupported : function(arguments...);
  }

  void check(Result result, const char* what) const {
    if (result == kSuccess) return;
    const auto text = library_.find<const char* (*)(Result)>("nvmlErrorString");
    throw Error(std::string("NVML: ") + what + ": " +
                (text == nullptr ? "error " + std::to_string(result) : text(result)));
  }

  unsigned number(const char* name, Handle device) const {
    unsigned found = 0;
    return call<Result(Handle, unsigned*)>(name, device, &found) == kSuccess ? found : 0;
  }

 private:
  DynamicLibrary library_;
};

unsigned active_links(const Nvml& nvml, Handle device) {
  unsigned active = 0;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int on = 0;
    const Result told =
        nvml.call<Result(Handle, unsigned, int*)>("nvmlDeviceGetNvLinkState", device, link, &on);
    // Not this one, or no more of them; there may be a gap.
    if (told == kNotSupported || told == kInvalidArgument) continue;
    nvml.check(told, "nvmlDeviceGetNvLinkState");
    active += on != 0 ? 1 : 0;
  }
  return active;
}

unsigned speed_of_links(const Nvml& nvml, Handle device) {
  FieldValue field;
  field.id = kSpeedOfNvlinks;
  const Result told =
      nvml.call<Result(Handle, int, FieldValue*)>("nvmlDeviceGetFieldValues", device, 1, &field);
  return told == kSuccess && field.result == kSuccess ? field.value.number : 0;
}

std::string fabric_of(const Nvml& nvml, Handle device) {
  FabricInfo info;
  info.version = kFabricVersion;
  const Result told =
      nvml.call<Result(Handle, FabricInfo*)>("nvmlDeviceGetGpuFabricInfoV", device, &info);
  // On hosts whose switches join no other host the cluster is zero (NCCL takes it so as well).
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

GpuLinks gpu_links(const std::string& uuid, const std::string& library) {
  const Nvml nvml(library);
  Handle device = nullptr;
  nvml.check(
      nvml.call<Result(const char*, Handle*)>("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device),
      "nvmlDeviceGetHandleByUUID");
  GpuLinks links;
  links.nvlinks = active_links(nvml, device);
  links.nvlink_MBps = links.nvlinks == 0 ? 0 : speed_of_links(nvml, device);
  // The current generation falls while a GPU idles; lanes that are missing stay so.
  links.pcie = nvml.number("nvmlDeviceGetMaxPcieLinkGeneration", device);
  links.pcie_width = nvml.number("nvmlDeviceGetCurrPcieLinkWidth", device);
  links.fabric = fabric_of(nvml, device);
  return links;
}

}  // namespace oddrank::bench

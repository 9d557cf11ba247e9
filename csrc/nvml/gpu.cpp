// Tables of the values that NVML has of one GPU, and the loops that read them.
#include "nvml/gpu.hpp"

#include <algorithm>
#include <array>

#include "os/dynlib.hpp"
#include "os/encoding.hpp"
#include "os/error.hpp"

namespace oddrank::nvml {
namespace {

// NVML, the NVIDIA driver's library about its GPUs, is opened at run time. nvml.h is not needed:
// the declarations here are copies (CUDA 12.9), and NVML never changes a published layout.
using Result = int;  // nvmlReturn_t
using Device = struct nvmlDevice_st*;
constexpr Result kSuccess = 0;
constexpr Result kInvalidArgument = 2;
constexpr Result kNotSupported = 3;
constexpr Result kNotFound = 6;
constexpr Result kGpuIsLost = 15;
constexpr Result kResetRequired = 16;
constexpr unsigned kMostLinks = 64;  // NVML_NVLINK_MAX_LINKS is 18 today

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
    unsigned long long large;
  } value{};
};
static_assert(sizeof(FieldValue) == 40);

// Values of nvmlValueType_t, which say where a value lies in the union.
constexpr int kDouble = 0;
constexpr int kUnsigned = 1;
constexpr int kSigned = 5;

// Keeps NVML initialized while it lives. Several may live: NVML counts.
class Library {
 public:
  // Throws Error if the library or the driver is missing.
  explicit Library(const std::string& file) {
    std::string why;
    library_ = DynamicLibrary::open(file, &why);
    if (!library_) throw Error("NVML, the library of the NVIDIA driver, cannot be loaded: " + why);
    check(call("nvmlInit_v2"), "nvmlInit_v2");
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { call("nvmlShutdown"); }

  // Calls a function, whose parameters are of the arguments' very types. Returns kNotSupported if
  // this driver's library has no such function.
  template <class... Arguments>
  Result call(const char* name, Arguments... arguments) const {
    const auto function = library_.find<Result (*)(Arguments...)>(name);
    return function == nullptr ? kNotSupported : function(arguments...);
  }
  std::string text_of(Result result) const {
    const auto text = library_.find<const char* (*)(Result)>("nvmlErrorString");
    return text == nullptr ? "error " + std::to_string(result) : text(result);
  }
  void check(Result result, const char* what) const {
    if (result != kSuccess) throw Error(std::string("NVML: ") + what + ": " + text_of(result));
  }

  Result device_of(const std::string& uuid, Device* device) const {
    return call("nvmlDeviceGetHandleByUUID", uuid.c_str(), device);
  }
  // Reads a number by the name of a function that takes the GPU alone.
  Result number(const char* name, Device device, std::uint64_t* found) const {
    unsigned number = 0;
    const Result told = call(name, device, &number);
    *found = number;
    return told;
  }
  // Reads the number NVML_FI_DEV_* `id`. `scope`: the link, for numbers of links.
  Result field(Device device, unsigned id, unsigned scope, std::uint64_t* found) const {
    FieldValue field;
    field.id = id;
    field.scope = scope;
    const Result told = call("nvmlDeviceGetFieldValues", device, 1, &field);
    if (told != kSuccess) return told;
    // First: a driver sets no type for a value that it could not read.
    if (field.result != kSuccess) return field.result;
    if (field.type == kDouble) return kNotSupported;  // no counter is one
    const bool narrow = field.type == kUnsigned || field.type == kSigned;
    *found = narrow ? field.value.number : field.value.large;
    return kSuccess;
  }
  // Sets `up`. Returns kNotSupported or kInvalidArgument for links that are absent: numbers may
  // have gaps.
  Result link_is_up(Device device, unsigned link, bool* up) const {
    int on = 0;
    const Result told = call("nvmlDeviceGetNvLinkState", device, link, &on);
    *up = told == kSuccess && on != 0;
    return told;
  }

 private:
  DynamicLibrary library_;
};

// NVML functions that return one unsigned number of a GPU.
struct Number {
  const char* name;
  const char* function;
};
constexpr Number kNumbers[] = {
    {"persistence", "nvmlDeviceGetPersistenceMode"},
    {"pcie", "nvmlDeviceGetCurrPcieLinkGeneration"},
    {"pcie_max", "nvmlDeviceGetMaxPcieLinkGeneration"},
    {"pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"},
    {"pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"},
    {"power_cap_mW", "nvmlDeviceGetEnforcedPowerLimit"},
    {"power_cap_default_mW", "nvmlDeviceGetPowerManagementDefaultLimit"},
    {"power_mW", "nvmlDeviceGetPowerUsage"},
    // 1 if a profiler (DCGM) streams the GPU's performance counters.
    {"profiled", "nvmlGpmQueryIfStreamingEnabled"},
};

// The same with an argument: a clock (1 SM, 2 memory) or a sensor (0 the GPU's).
struct OfKind {
  const char* name;
  const char* function;
  unsigned kind;
};
constexpr OfKind kOfKind[] = {
    {"clock_sm_MHz", "nvmlDeviceGetClockInfo", 1},
    {"clock_memory_MHz", "nvmlDeviceGetClockInfo", 2},
    {"max_clock_sm_MHz", "nvmlDeviceGetMaxClockInfo", 1},
    {"max_clock_memory_MHz", "nvmlDeviceGetMaxClockInfo", 2},
    {"temperature_C", "nvmlDeviceGetTemperature", 0},
};

// NVML_FI_DEV_*.
struct Field {
  const char* name;
  unsigned id;
};
constexpr Field kFields[] = {
    {"ecc", 1},
    {"ecc_corrected", 3},         // since the driver was loaded
    {"ecc_uncorrected", 4},       // likewise
    {"ecc_uncorrected_ever", 6},  // since the GPU was made
    {"retired_pages_corrected", 29},
    {"retired_pages_uncorrected", 30},
    {"retirement_pending", 31},
    {"remapped_rows_corrected", 142},
    {"remapped_rows_uncorrected", 143},
    {"remap_pending", 144},
    {"remap_failed", 145},
    {"recovery_action", 230},
};

constexpr Field kCounters[] = {
    {"ecc_corrected", 3},         {"ecc_uncorrected", 4},  {"pcie_replay", 94},
    {"pcie_fatal", 180},          {"power_cap_ns", 74},    {"software_thermal_ns", 269},
    {"hardware_thermal_ns", 270}, {"power_brake_ns", 271},
};

// Error counters per link before Blackwell, in the order of nvmlNvLinkErrorCounter_t. Newer GPUs
// have the fields below instead.
constexpr std::array<const char*, 5> kLinkErrors = {"replay", "recovery", "crc_flit", "crc_data",
                                                    "ecc_data"};
constexpr Field kLinkFields[] = {
    {"malformed", 206},     {"buffer_overrun", 207},   {"receive_errors", 208},
    {"integrity", 211},     {"discarded", 212},        {"recovery_failed", 214},
    {"link_recovery", 215}, {"effective_errors", 219},
};

bool is_lost(Result told) { return told == kGpuIsLost || told == kResetRequired; }

// Collects the values of one GPU or link.
struct Notes {
  const Library& library;
  Readings& readings;
  std::string& lost;

  void add(const char* name, Result told, std::uint64_t found) const {
    if (told == kSuccess) {
      readings.numbers[name] = found;
      return;
    }
    readings.unreadable[name] = library.text_of(told);
    if (is_lost(told)) lost = library.text_of(told);
  }
};

template <class Rows>
void ask_fields(const Notes& notes, Device device, const Rows& rows, unsigned scope) {
  for (const Field& row : rows) {
    std::uint64_t found = 0;
    const Result told = notes.library.field(device, row.id, scope, &found);
    notes.add(row.name, told, found);
  }
}

Result throttle_reasons(const Library& library, Device device, std::uint64_t* found) {
  unsigned long long reasons = 0;
  Result told = library.call("nvmlDeviceGetCurrentClocksEventReasons", device, &reasons);
  if (told == kNotSupported) {  // its name before driver 535
    told = library.call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons);
  }
  *found = reasons;
  return told;
}

void ask_numbers(const Notes& notes, Device device) {
  std::uint64_t found = 0;
  for (const Number& row : kNumbers) {
    const Result told = notes.library.number(row.function, device, &found);
    notes.add(row.name, told, found);
  }
  for (const OfKind& row : kOfKind) {
    unsigned number = 0;
    const Result told = notes.library.call(row.function, device, row.kind, &number);
    notes.add(row.name, told, number);
  }
  const Result told = throttle_reasons(notes.library, device, &found);
  notes.add("throttle", told, found);
  unsigned mig = 0;
  unsigned pending = 0;
  const Result mode = notes.library.call("nvmlDeviceGetMigMode", device, &mig, &pending);
  notes.add("mig", mode, mig);
}

struct Process {  // nvmlProcessInfo_v2_t
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(Process) == 24);

// Calls `function`_v3, or _v2 before driver 510.
std::optional<std::vector<unsigned>> processes(const Library& library, Device device,
                                               const std::string& function) {
  std::array<Process, 256> list{};
  for (const char* version : {"_v3", "_v2"}) {
    unsigned count = list.size();
    const Result told = library.call((function + version).c_str(), device, &count, list.data());
    if (told == kNotSupported) continue;
    if (told != kSuccess) return std::nullopt;
    std::vector<unsigned> pids;
    for (unsigned i = 0; i < std::min<unsigned>(count, list.size()); ++i) {
      pids.push_back(list[i].pid);
    }
    return pids;
  }
  return std::nullopt;
}

// A GPU or a MIG slice, which NVML finds in different ways. `lost`: why it does not answer.
struct Found {
  Device device = nullptr;
  bool slice = false;
  std::string lost;
};

Found find(const Library& library, const std::string& uuid) {
  Found found;
  Result told = library.device_of("GPU-" + uuid, &found.device);
  if (told == kNotFound || told == kInvalidArgument) {
    const Result slice = library.device_of("MIG-" + uuid, &found.device);
    found.slice = slice == kSuccess;
    if (found.slice) told = slice;
  }
  if (is_lost(told)) {
    found.lost = library.text_of(told);
  } else {
    library.check(told, "nvmlDeviceGetHandleByUUID");
  }
  return found;
}

// Returns the GPU of a slice: it has the errors and clocks.
Device whole(const Library& library, const Found& found) {
  Device parent = nullptr;
  const bool known = found.slice && library.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
                                                 found.device, &parent) == kSuccess;
  return known ? parent : found.device;
}

}  // namespace

GpuHealth gpu_health(const std::string& uuid, const std::string& file) {
  const Library library(file);
  const Found found = find(library, uuid);
  GpuHealth health;
  health.slice = found.slice;
  health.lost = found.lost;
  if (!health.lost.empty()) return health;
  std::array<char, 128> name{};  // NVML_DEVICE_NAME_V2_BUFFER_SIZE is 96
  if (library.call("nvmlDeviceGetName", found.device, name.data(),
                   static_cast<unsigned>(name.size() - 1)) == kSuccess) {
    health.name = name.data();
  }
  const Device gpu = whole(library, found);
  const Notes notes{library, health.readings, health.lost};
  ask_numbers(notes, gpu);
  ask_fields(notes, gpu, kFields, 0);
  health.processes = processes(library, found.device, "nvmlDeviceGetComputeRunningProcesses");
  health.mps_clients = processes(library, found.device, "nvmlDeviceGetMPSComputeRunningProcesses");
  return health;
}

GpuCounters gpu_counters(const std::string& uuid, const std::string& file) {
  const Library library(file);
  const Found found = find(library, uuid);
  GpuCounters counters;
  counters.lost = found.lost;
  if (!counters.lost.empty()) return counters;
  const Device gpu = whole(library, found);
  ask_fields({library, counters.gpu, counters.lost}, gpu, kCounters, 0);
  for (unsigned link = 0; link < kMostLinks; ++link) {
    bool up = false;
    if (library.link_is_up(gpu, link, &up) != kSuccess || !up) continue;
    const Notes notes{library, counters.links[link], counters.lost};
    for (unsigned which = 0; which < kLinkErrors.size(); ++which) {
      unsigned long long count = 0;
      const Result told = library.call("nvmlDeviceGetNvLinkErrorCounter", gpu, link, which, &count);
      notes.add(kLinkErrors[which], told, count);
    }
    ask_fields(notes, gpu, kLinkFields, link);
  }
  return counters;
}

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

std::string fabric_of(const Library& library, Device device) {
  FabricInfo info;
  info.version = kFabricVersion;
  const Result told = library.call("nvmlDeviceGetGpuFabricInfoV", device, &info);
  // The cluster is zero if the switches join no other host (NCCL reads it so, too).
  const bool none =
      std::all_of(info.cluster.begin(), info.cluster.end(), [](auto b) { return b == 0; });
  if (told != kSuccess || info.state != kRegistered || info.status != kSuccess || none) return "";
  std::string text;
  for (const unsigned char byte : info.cluster) append_hex(byte, text);
  return text + "." + std::to_string(info.clique);
}

}  // namespace

GpuLinks gpu_links(const std::string& uuid, const std::string& file) {
  const Library library(file);
  Device device = nullptr;
  library.check(library.device_of(uuid, &device), "nvmlDeviceGetHandleByUUID");
  GpuLinks links;
  links.nvlinks = active_links(library, device);
  std::uint64_t found = 0;
  const auto or_0 = [&found](Result told) {
    return told == kSuccess ? static_cast<unsigned>(found) : 0;
  };
  if (links.nvlinks > 0) {
    links.nvlink_MBps = or_0(library.field(device, kSpeedOfNvlinks, 0, &found));
  }
  // The current generation falls while a GPU idles; lanes that are missing stay so.
  links.pcie = or_0(library.number("nvmlDeviceGetMaxPcieLinkGeneration", device, &found));
  links.pcie_width = or_0(library.number("nvmlDeviceGetCurrPcieLinkWidth", device, &found));
  links.fabric = fabric_of(library, device);
  return links;
}

}  // namespace oddrank::nvml

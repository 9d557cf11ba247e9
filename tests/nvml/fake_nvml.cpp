// An NVML without a GPU: it has one, GPU-fake, which is as FAKE_* says, and MIG-fake, a slice of
// it. Compiled by fake_nvml.py. FAKE_<function> and FAKE_field_<id>[_<link>] are a number, or "eN":
// NVML's error N; without it the function is not supported.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {
int device, slice;

template <class T>
int told(const std::string& name, T* found) {
  const char* text = std::getenv(("FAKE_" + name).c_str());
  if (text == nullptr) return 3;
  if (text[0] == 'e') return std::atoi(text + 1);
  *found = static_cast<T>(std::strtoull(text, nullptr, 10));
  return 0;
}

unsigned asked(const char* name, unsigned otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

struct FieldValue {
  unsigned id, scope;
  long long timestamp, latency;
  int type, result;
  unsigned long long value;
};
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() { return static_cast<int>(asked("FAKE_INIT", 0)); }
EXPORT int nvmlShutdown() { return 0; }
EXPORT const char* nvmlErrorString(int error) {
  if (error == 999) return "Unknown Error";
  return error == 9 ? "Driver Not Loaded" : error == 6 ? "Not Found" : "a fake error";
}
EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  const bool mig = std::strcmp(uuid, "MIG-fake") == 0;
  *handle = mig ? &slice : &device;
  if (mig) return asked("FAKE_SLICED", 0) != 0 ? 0 : 6;
  if (std::strcmp(uuid, "GPU-fake") != 0 || asked("FAKE_SLICED", 0) != 0) return 6;
  return static_cast<int>(asked("FAKE_HANDLE", 0));
}
EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* handle, void** parent) {
  *parent = &device;
  return handle == &slice ? 0 : 2;
}
EXPORT int nvmlDeviceGetName(void* handle, char* name, unsigned length) {
  std::strncpy(name, handle == &slice ? "NVIDIA H200 MIG 1g.18gb" : "NVIDIA H200", length);
  return 0;
}
EXPORT int nvmlDeviceGetNvLinkState(void* handle, unsigned link, int* active) {
  if (handle != &device) return 2;
  const unsigned links = asked("FAKE_LINKS", 0);
  if (links == 0 || link == asked("FAKE_GAP", 64)) return 3;
  if (link == asked("FAKE_LOST", 64)) return 15;
  *active = link < links - asked("FAKE_DOWN", 0) ? 1 : 0;
  return link < links ? 0 : 2;
}
EXPORT int nvmlDeviceGetFieldValues(void* handle, int count, FieldValue* values) {
  if (count != 1 || handle != &device) return 2;
  const std::string id = std::to_string(values->id);
  unsigned long long found = 0;
  values->result = told("field_" + id + "_" + std::to_string(values->scope), &found);
  if (values->result == 3) values->result = told("field_" + id, &found);
  if (values->result == 0) {  // drivers leave type and value unset if they fail
    values->type = 3;         // unsigned long long
    values->value = found;
  }
  if (values->id == 90) {
    values->type = 1;  // unsigned int: the rest of the union is not written
    values->result = 0;
    values->value = 0xABCDEF0000000000ULL + 26562;
  }
  return 0;
}
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* generation) {
  *generation = 5;
  return 0;
}
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* width) {
  *width = asked("FAKE_WIDTH", 16);
  return 0;
}

// nvmlReturn_t NAME(nvmlDevice_t, unsigned*): of the whole GPU only.
#define NUMBER(NAME)                                    \
  EXPORT int NAME(void* handle, unsigned* number) {     \
    return handle == &device ? told(#NAME, number) : 2; \
  }
NUMBER(nvmlDeviceGetPersistenceMode)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth)
NUMBER(nvmlDeviceGetEnforcedPowerLimit)
NUMBER(nvmlDeviceGetPowerUsage)
NUMBER(nvmlGpmQueryIfStreamingEnabled)

EXPORT int nvmlDeviceGetMaxClockInfo(void*, unsigned kind, unsigned* clock) {
  return told("nvmlDeviceGetMaxClockInfo_" + std::to_string(kind), clock);
}
EXPORT int nvmlDeviceGetMigMode(void*, unsigned* mode, unsigned* pending) {
  *pending = 0;
  return told("nvmlDeviceGetMigMode", mode);
}
#if defined(FORMER_NAMES)  // an old driver's name for it
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
#else
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void*, unsigned long long* reasons) {
#endif
  return told("throttle", reasons);
}

struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned instances[2];
};
// FAKE_processes="1234 77": their pids.
#if defined(FORMER_NAMES)
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void*, unsigned* count, Process* list) {
#else
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, Process* list) {
#endif
  const char* text = std::getenv("FAKE_processes");
  if (text == nullptr) return 4;  // no permission
  *count = 0;
  char* end = nullptr;
  for (unsigned pid = std::strtoul(text, &end, 10); pid != 0; pid = std::strtoul(end, &end, 10)) {
    list[(*count)++] = {pid, 1 << 20, {0, 0}};
  }
  return 0;
}
EXPORT int nvmlDeviceGetNvLinkErrorCounter(void*, unsigned link, unsigned counter,
                                           unsigned long long* count) {
  return told("link_" + std::to_string(link) + "_" + std::to_string(counter), count);
}

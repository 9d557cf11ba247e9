// An NVML without a GPU: it has one, GPU-fake, which is as FAKE_* says. Compiled by the test.
#include <cstdlib>
#include <cstring>

namespace {
int device;

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
struct FabricInfo {
  unsigned version;
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health;
};
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() { return static_cast<int>(asked("FAKE_INIT", 0)); }
EXPORT int nvmlShutdown() { return 0; }
EXPORT const char* nvmlErrorString(int error) {
  return error == 9 ? "Driver Not Loaded" : error == 6 ? "Not Found" : "a fake error";
}
EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  *handle = &device;
  return std::strcmp(uuid, "GPU-fake") == 0 ? 0 : 6;
}
EXPORT int nvmlDeviceGetNvLinkState(void* handle, unsigned link, int* active) {
  if (handle != &device) return 2;
  const unsigned links = asked("FAKE_LINKS", 0);
  if (links == 0 || link == asked("FAKE_GAP", 64)) return 3;
  if (link == asked("FAKE_LOST", 64)) return 15;
  *active = link < links - asked("FAKE_DOWN", 0) ? 1 : 0;
  return link < links ? 0 : 2;
}
EXPORT int nvmlDeviceGetFieldValues(void*, int count, FieldValue* values) {
  if (count != 1 || values->id != 90) return 2;
  values->result = 0;
  values->value = 26562;
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
#if !defined(WITHOUT_FABRIC)
EXPORT int nvmlDeviceGetGpuFabricInfoV(void*, FabricInfo* info) {
  if (info->version != (sizeof(FabricInfo) | 2U << 24U)) return 25;
  std::memset(info->cluster, static_cast<int>(asked("FAKE_CLUSTER", 0)), sizeof info->cluster);
  info->status = 0;
  info->clique = asked("FAKE_CLIQUE", 0);
  info->state = static_cast<unsigned char>(asked("FAKE_STATE", 3));
  return 0;
}
#endif

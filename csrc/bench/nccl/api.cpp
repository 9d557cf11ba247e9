// Loads and checks libnccl.so.2.
#include "bench/nccl/api.hpp"

#include <memory>
#include <mutex>

#include "cuda/runtime.hpp"
#include "os/dynlib.hpp"
#include "os/error.hpp"

namespace oddrank::nccl {
namespace {

constexpr int kOldest = 21403;

std::mutex mutex;
std::unique_ptr<const Api> table;  // guarded by mutex; never replaced once set

Api fill(const std::string& file, const std::string& source) {
  std::string why;
  const auto library = DynamicLibrary::open(file, &why);
  if (!library) throw Error("NCCL was not loaded: " + why);
  Api api;
  std::string lacking;
#define ODDRANK_NCCL_FIND(name) api.name = library.find<decltype(api.name)>("nccl" #name);
#define ODDRANK_NCCL_FIND_REQUIRED(name) \
  ODDRANK_NCCL_FIND(name)                \
  if (api.name == nullptr) lacking += lacking.empty() ? "nccl" #name : ", nccl" #name;
#define ODDRANK_NCCL_FIND_OPTIONAL(name) \
  ODDRANK_NCCL_FIND(name)                \
  if (api.name == nullptr) api.missing.emplace_back("nccl" #name);
  ODDRANK_NCCL_REQUIRED(ODDRANK_NCCL_FIND_REQUIRED)
#define ODDRANK_NCCL_FIND_NEWER(name, type) ODDRANK_NCCL_FIND_OPTIONAL(name)
  ODDRANK_NCCL_OPTIONAL(ODDRANK_NCCL_FIND_OPTIONAL)
  ODDRANK_NCCL_NEWER(ODDRANK_NCCL_FIND_NEWER)
#undef ODDRANK_NCCL_FIND_NEWER
#undef ODDRANK_NCCL_FIND_OPTIONAL
#undef ODDRANK_NCCL_FIND_REQUIRED
#undef ODDRANK_NCCL_FIND

  if (api.GetVersion != nullptr) {
    api.path = DynamicLibrary::file_of(reinterpret_cast<const void*>(api.GetVersion));
    if (api.GetVersion(&api.version) != ncclSuccess) api.version = 0;
  }
  if (!lacking.empty() || api.version < kOldest) {
    throw Error("the NCCL found by \"" + source + "\" (" +
                (api.path.empty() ? "not an NCCL" : api.path + ", " + version_text(api.version)) +
                ") can't be used" + (lacking.empty() ? "" : ": it lacks " + lacking) +
                ". NCCL 2.14.3 or newer is needed: set ODDRANK_NCCL_LIBRARY=/path/to/libnccl.so.2");
  }
  return api;
}

}  // namespace

const Api& load(const std::string& file, const std::string& source) {
  const std::lock_guard lock(mutex);
  if (!table) table = std::make_unique<const Api>(fill(file, source));
  return *table;
}

const Api& loaded() {
  const std::lock_guard lock(mutex);
  if (!table) throw Error("NCCL is not loaded yet: call oddrank._native.load_nccl() first");
  return *table;
}

std::string version_text(int version) {
  // 2.8 and older counted in thousands: 2804 = 2.8.4.
  const int unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

void check(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const Api& api = loaded();
  const char* last = api.GetLastError(comm);
  const std::string where = cuda::place();
  std::string text = std::string(call) + " failed with NCCL error " +
                     std::to_string(static_cast<int>(result)) + ": " + api.GetErrorString(result);
  if (last != nullptr && *last != '\0') text.append("; NCCL's last message: ").append(last);
  if (!where.empty()) text.append("; ").append(where);
  if (result == ncclUnhandledCudaError && !cuda::driver_version()) {
    text.append("; ").append(cuda::driver_problem());
  }
  throw Error(text);
}

}  // namespace oddrank::nccl

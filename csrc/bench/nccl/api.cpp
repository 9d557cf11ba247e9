// Finds, loads and checks libnccl.so.2.
#include "bench/nccl/api.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>

#include "cuda/runtime.hpp"
#include "os/dynlib.hpp"
#include "os/error.hpp"

namespace oddrank::nccl {
namespace {

constexpr const char* kSoname = "libnccl.so.2";
constexpr int kOldest = 21403;

std::mutex mutex;
std::unique_ptr<const Api> table;  // guarded by mutex; never replaced once set

struct Found {
  DynamicLibrary library;
  std::string source;
};

Found find_library(const std::string& wheel) {
  std::string why;
  if (const char* file = std::getenv("ODDRANK_NCCL_LIBRARY"); file != nullptr && *file != '\0') {
    if (auto library = DynamicLibrary::open(file, &why)) return {library, "ODDRANK_NCCL_LIBRARY"};
    throw Error("NCCL was not loaded: ODDRANK_NCCL_LIBRARY: " + why +
                ". Correct the variable or unset it");
  }
  if (auto library = DynamicLibrary::already_loaded(kSoname)) return {library, "already loaded"};

  std::string looked = "ODDRANK_NCCL_LIBRARY: not set; in this process: not loaded";
  std::vector<std::pair<std::string, std::string>> places;
  if (wheel.empty()) {
    looked += "; nvidia-nccl wheel: not installed";
  } else {
    places.emplace_back("nvidia-nccl wheel", wheel);
  }
  places.emplace_back("system", kSoname);
  const char* home = std::getenv("CUDA_HOME");
  places.emplace_back("CUDA toolkit", std::string(home != nullptr ? home : "/usr/local/cuda") +
                                          "/lib64/" + kSoname);
  for (const auto& [source, file] : places) {
    if (auto library = DynamicLibrary::open(file, &why)) return {library, source};
    looked.append("; ").append(source).append(": ").append(why);
  }
  throw Error("NCCL was not found. Looked at " + looked + ". Type: pip install nvidia-nccl-cu" +
              std::to_string(CUDART_VERSION / 1000) +
              ", or set ODDRANK_NCCL_LIBRARY=/path/to/libnccl.so.2");
}

Api fill(const Found& found) {
  Api api;
  std::string lacking;
#define ODDRANK_NCCL_FIND(name) api.name = found.library.find<decltype(api.name)>("nccl" #name);
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

  api.source = found.source;
  if (api.GetVersion != nullptr) {
    api.path = DynamicLibrary::file_of(reinterpret_cast<const void*>(api.GetVersion));
    if (api.GetVersion(&api.version) != ncclSuccess) api.version = 0;
  }
  if (!lacking.empty() || api.version < kOldest) {
    throw Error("the NCCL found by \"" + api.source + "\" (" +
                (api.path.empty() ? "not an NCCL" : api.path + ", " + version_text(api.version)) +
                ") can't be used" + (lacking.empty() ? "" : ": it lacks " + lacking) +
                ". NCCL 2.14.3 or newer is needed: set ODDRANK_NCCL_LIBRARY=/path/to/libnccl.so.2");
  }
  return api;
}

}  // namespace

const Api& load(const std::string& wheel) {
  const std::lock_guard lock(mutex);
  if (!table) table = std::make_unique<const Api>(fill(find_library(wheel)));
  return *table;
}

const Api& loaded() {
  const std::lock_guard lock(mutex);
  if (!table) throw Error("NCCL is not loaded yet: call oddrank._native.load_nccl() first");
  return *table;
}

std::vector<std::string> mapped_libraries() {
  std::vector<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto begin = line.find('/');
    if (begin == std::string::npos) continue;
    const std::string file = line.substr(begin);
    if (file.compare(file.rfind('/') + 1, 11, "libnccl.so.") != 0) continue;
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  }
  return files;
}

std::string several_libraries_warning() {
  const auto files = mapped_libraries();
  if (files.size() < 2) return {};
  std::string text =
      "several NCCLs are loaded in this process, torch may use another than oddrank:";
  for (const auto& file : files) text.append(" ").append(file);
  return text;
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

// dlopen(), dlsym() and dladdr() behind types.
#include "os/dynlib.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace oddrank {

DynamicLibrary DynamicLibrary::open(const std::string& file, std::string* why) noexcept {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr && why != nullptr) {
    const char* text = ::dlerror();
    *why = text != nullptr ? text : "cannot be loaded";
  }
  return DynamicLibrary(handle);
}

DynamicLibrary DynamicLibrary::already_loaded(const std::string& soname) noexcept {
  return DynamicLibrary(::dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD));
}

std::string DynamicLibrary::file_of(const void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code failed;
  const auto resolved = std::filesystem::canonical(info.dli_fname, failed);
  return failed ? std::string(info.dli_fname) : resolved.string();
}

void* DynamicLibrary::find_address(const char* name) const noexcept {
  return handle_ == nullptr ? nullptr : ::dlsym(handle_, name);
}

}  // namespace oddrank

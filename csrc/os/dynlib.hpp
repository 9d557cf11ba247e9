// A shared library opened at run time: typed lookups, and the file that it really came from.
#pragma once

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

#include <array>
#include <string>

namespace oddrank {

// A handle of dlopen() or none. Never closed: NCCL and the CUDA driver leave threads and callbacks
// behind that must not lose their code.
class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  // Calls dlopen(RTLD_NOW | RTLD_LOCAL). On failure returns an empty library, and sets `why` to the
  // loader's message.
  static DynamicLibrary open(const std::string& file, std::string* why) noexcept {
    void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr && why != nullptr) {
      const char* text = ::dlerror();
      *why = text != nullptr ? text : "cannot be loaded";
    }
    return DynamicLibrary(handle);
  }

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  // Returns null if the library has no such symbol. F is a function pointer: decltype(&function).
  template <class F>
  F find(const char* name) const noexcept {
    return reinterpret_cast<F>(handle_ == nullptr ? nullptr : ::dlsym(handle_, name));
  }
  // Returns the file that holds `address`, symbolic links resolved; empty if none does.
  static std::string file_of(const void* address) {
    Dl_info info{};
    if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
    std::array<char, PATH_MAX> resolved{};
    return ::realpath(info.dli_fname, resolved.data()) != nullptr ? resolved.data()
                                                                  : info.dli_fname;
  }

 private:
  explicit DynamicLibrary(void* handle) noexcept : handle_(handle) {}
  void* handle_ = nullptr;
};

}  // namespace oddrank

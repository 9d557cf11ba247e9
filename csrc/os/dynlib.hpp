// A shared library opened at run time: typed lookups, and where it really came from.
#pragma once

#include <string>

namespace oddrank {

// A handle of dlopen() or none. Never closed: NCCL and the CUDA driver leave threads and callbacks
// behind that must not lose their code.
class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  // dlopen(RTLD_NOW | RTLD_LOCAL); on failure an empty library, and `why` says what the loader
  // said.
  static DynamicLibrary open(const std::string& file, std::string* why) noexcept;
  // The copy that is in the process already (by its soname), else an empty library.
  static DynamicLibrary already_loaded(const std::string& soname) noexcept;

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  // Null where the library has no such symbol. F is a function pointer: decltype(&function).
  template <class F>
  F find(const char* name) const noexcept {
    return reinterpret_cast<F>(find_address(name));
  }
  // The file that holds `address`, symbolic links resolved; empty if none does.
  static std::string file_of(const void* address);

 private:
  explicit DynamicLibrary(void* handle) noexcept : handle_(handle) {}
  void* find_address(const char* name) const noexcept;
  void* handle_ = nullptr;
};

}  // namespace oddrank

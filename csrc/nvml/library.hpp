// NVML, the NVIDIA driver's library about its GPUs, opened at run time. nvml.h is not needed: the
// declarations here are copies (CUDA 12.9), and NVML never changes a published layout.
#pragma once

#include <cstdint>
#include <string>

#include "os/dynlib.hpp"

namespace oddrank::nvml {

using Result = int;  // nvmlReturn_t
using Device = struct nvmlDevice_st*;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidArgument = 2;
inline constexpr Result kNotSupported = 3;
inline constexpr Result kNotFound = 6;
inline constexpr Result kGpuIsLost = 15;
inline constexpr Result kResetRequired = 16;
inline constexpr unsigned kMostLinks = 64;  // NVML_NVLINK_MAX_LINKS is 18 today

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

// Keeps NVML initialized while it lives. Several may live: NVML counts.
class Library {
 public:
  // Throws Error if the library or the driver is missing.
  explicit Library(const std::string& file);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  // Returns kNotSupported if this driver's library has no such function.
  template <class F, class... Arguments>
  Result call(const char* name, Arguments... arguments) const {
    const auto function = library_.find<F*>(name);
    return function == nullptr ? kNotSupported : function(arguments...);
  }
  std::string text_of(Result result) const;
  void check(Result result, const char* what) const;

  Result device_of(const std::string& uuid, Device* device) const;
  // Reads a number by the name of a function that takes the GPU alone.
  Result number(const char* name, Device device, std::uint64_t* found) const;
  // Reads the number NVML_FI_DEV_* `id`. `scope`: the link, for numbers of links.
  Result field(Device device, unsigned id, unsigned scope, std::uint64_t* found) const;
  // Sets `up`. Returns kNotSupported or kInvalidArgument for links that are absent: numbers may
  // have gaps.
  Result link_is_up(Device device, unsigned link, bool* up) const;

 private:
  DynamicLibrary library_;
};

}  // namespace oddrank::nvml

// NVML, the NVIDIA driver's library about its GPUs: opened at run time, one way for all who ask it.
// Its header is not needed: the few declarations here are those of nvml.h (CUDA 12.9), whose
// functions and structures keep their layout for good.
#pragma once

#include <cstdint>
#include <string>

#include "base/dynlib.hpp"

namespace oddrank::nvml {

using Result = int;  // nvmlReturn_t
using Device = struct nvmlDevice_st*;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidArgument = 2;
inline constexpr Result kNotSupported = 3;
inline constexpr Result kNotFound = 6;
inline constexpr Result kInsufficientSize = 7;
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

// Between nvmlInit and nvmlShutdown, which count.
class Library {
 public:
  // Throws Error: the library or the driver is not there, in words.
  explicit Library(const std::string& file);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  // kNotSupported where this driver's library has no such function.
  template <class F, class... Arguments>
  Result call(const char* name, Arguments... arguments) const {
    const auto function = library_.find<F*>(name);
    return function == nullptr ? kNotSupported : function(arguments...);
  }
  std::string text_of(Result result) const;
  void check(Result result, const char* what) const;

  Result device_of(const std::string& uuid, Device* device) const;
  // A number of a GPU by a function that takes nothing else.
  Result number(const char* name, Device device, std::uint64_t* found) const;
  // A number by its NVML_FI_DEV_*; scope: the link, where it belongs to one.
  Result field(Device device, unsigned id, unsigned scope, std::uint64_t* found) const;
  // Whether a link is there and up. kNotSupported, kInvalidArgument: no such link; may be a gap.
  Result link_is_up(Device device, unsigned link, bool* up) const;

 private:
  DynamicLibrary library_;
};

}  // namespace oddrank::nvml

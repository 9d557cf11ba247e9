// Opens libnvidia-ml.so.1 and calls it.
#include "nvml/library.hpp"

#include "os/error.hpp"

namespace oddrank::nvml {
namespace {

// Values of nvmlValueType_t, which say where a value lies in the union.
constexpr int kDouble = 0;
constexpr int kUnsigned = 1;
constexpr int kSigned = 5;

}  // namespace

Library::Library(const std::string& file) {
  std::string why;
  library_ = DynamicLibrary::open(file, &why);
  if (!library_) throw Error("NVML, the library of the NVIDIA driver, cannot be loaded: " + why);
  check(call<Result()>("nvmlInit_v2"), "nvmlInit_v2");
}

Library::~Library() {
  if (const auto end = library_.find<Result (*)()>("nvmlShutdown")) end();
}

std::string Library::text_of(Result result) const {
  const auto text = library_.find<const char* (*)(Result)>("nvmlErrorString");
  return text == nullptr ? "error " + std::to_string(result) : text(result);
}

void Library::check(Result result, const char* what) const {
  if (result != kSuccess) throw Error(std::string("NVML: ") + what + ": " + text_of(result));
}

Result Library::device_of(const std::string& uuid, Device* device) const {
  return call<Result(const char*, Device*)>("nvmlDeviceGetHandleByUUID", uuid.c_str(), device);
}

Result Library::number(const char* name, Device device, std::uint64_t* found) const {
  unsigned number = 0;
  const Result told = call<Result(Device, unsigned*)>(name, device, &number);
  *found = number;
  return told;
}

Result Library::field(Device device, unsigned id, unsigned scope, std::uint64_t* found) const {
  FieldValue field;
  field.id = id;
  field.scope = scope;
  const Result told =
      call<Result(Device, int, FieldValue*)>("nvmlDeviceGetFieldValues", device, 1, &field);
  if (told != kSuccess) return told;
  // First: a driver sets no type for a value that it could not read.
  if (field.result != kSuccess) return field.result;
  if (field.type == kDouble) return kNotSupported;  // no counter is one
  const bool narrow = field.type == kUnsigned || field.type == kSigned;
  *found = narrow ? field.value.number : field.value.large;
  return kSuccess;
}

Result Library::link_is_up(Device device, unsigned link, bool* up) const {
  int on = 0;
  const Result told =
      call<Result(Device, unsigned, int*)>("nvmlDeviceGetNvLinkState", device, link, &on);
  *up = told == kSuccess && on != 0;
  return told;
}

}  // namespace oddrank::nvml

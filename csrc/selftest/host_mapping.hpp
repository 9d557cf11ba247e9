// Fresh memory of the host that a test may fill, unmapped on destruction.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace oddrank::selftest {

class HostMapping {
 public:
  explicit HostMapping(std::size_t bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      throw_errno("can't allocate " + std::to_string(bytes) + " bytes of host memory");
    }
    ::madvise(data_, bytes, MADV_HUGEPAGE);  // page faults would dominate; refusal is harmless
    ::madvise(data_, bytes, MADV_DONTFORK);  // a fork meanwhile must not double the memory
  }
  HostMapping(const HostMapping&) = delete;
  HostMapping& operator=(const HostMapping&) = delete;
  ~HostMapping() { ::munmap(data_, bytes_); }
  std::uint64_t* words() const noexcept { return static_cast<std::uint64_t*>(data_); }

 private:
  void* data_;
  std::size_t bytes_;
};

}  // namespace oddrank::selftest

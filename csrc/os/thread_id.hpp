// The calling thread's native id, without asking the kernel each time.
#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace oddrank {

// Makes a system call only at a thread's first call, and at its first call after a fork.
inline std::uint32_t thread_id() noexcept {
  // Initial-exec: read without a call. It takes 4 bytes of the space that glibc reserves for
  // libraries loaded late.
  static __thread std::uint32_t id __attribute__((tls_model("initial-exec"))) = 0;
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { id = 0; });
  static_cast<void>(registered);
  if (id == 0)
    id = static_cast<std::uint32_t>(::syscall(SYS_gettid));  // glibc 2.28 has no gettid()
  return id;
}

}  // namespace oddrank

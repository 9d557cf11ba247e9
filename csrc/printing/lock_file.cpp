// Makes or joins the lock file. No descriptor is kept: the mapping is what processes share.
#include "printing/lock_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <cerrno>
#include <fstream>
#include <new>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/private_folder.hpp"

namespace oddrank::printing {
namespace {

constexpr int kMakeMilliseconds = 1000;

// One file per host and boot: $ODDRANK_DIR may lie on a file system that many hosts mount.
std::string file_name() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string("printflock-") + kVersion + "-" + kLibrary +
         std::to_string(sizeof(pthread_mutex_t)) + "-" + (boot.empty() ? "host" : boot);
}

void make_lane(Lane& lane, const pthread_mutexattr_t& robust) {
  new (&lane) Lane{};
  if (const int error = ::pthread_mutex_init(&lane.mutex, &robust); error != 0)
    throw SystemError("pthread_mutex_init", error);
}

void make_table(Table& table) {
  pthread_mutexattr_t robust;
  ::pthread_mutexattr_init(&robust);
  ::pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
  for (Output& output : table.outputs)
    for (Lane& lane : output.lanes) make_lane(lane, robust);
  ::pthread_mutexattr_destroy(&robust);
  table.size = sizeof(Table);
  table.magic.store(kMagic, std::memory_order_release);
}

// Only while the file is being made: a process stopped just then must not stop the others.
void lock_to_make(int file) {
  const Deadline deadline = Deadline::after_ms(kMakeMilliseconds);
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) throw_errno("flock");
    if (deadline.passed()) throw Error("the process that makes the lock file does not go on");
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

Table* map(int file, int flags) {
  void* memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, flags, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Table*>(memory);
}

bool has_room(int file) {
  struct stat entry {};
  return ::fstat(file, &entry) == 0 && entry.st_size >= static_cast<off_t>(sizeof(Table));
}

Table* map_file(int file) {
  Table* table = map(file, MAP_SHARED);
  if (table == nullptr) throw_errno("mmap the lock file");
  return table;
}

bool is_made(const Table& table) {
  return table.magic.load(std::memory_order_acquire) == kMagic && table.size == sizeof(Table);
}

Table* join(const std::string& folder) {
  const Fd place = open_private_folder(folder);
  const Fd file = open_private_file(place.get(), file_name(), O_RDWR | O_CREAT);
  Table* table = has_room(file.get()) ? map_file(file.get()) : nullptr;
  if (table != nullptr && is_made(*table)) return table;
  lock_to_make(file.get());
  if (table == nullptr) {
    // Blocks are taken now: a full /dev/shm is an error here, never a SIGBUS later.
    if (const int error = ::posix_fallocate(file.get(), 0, sizeof(Table)); error != 0)
      throw SystemError("make room for the lock file", error);
    table = map_file(file.get());
  }
  // The maker may have died half-way; nobody uses a table without its magic, so it is made again.
  if (!is_made(*table)) make_table(*table);
  return table;
}

}  // namespace

LockFile open_lock_file(const std::vector<std::string>& folders) {
  std::string refused;
  for (const std::string& folder : folders) {
    try {
      return {join(folder), folder + "/" + file_name(), refused};
    } catch (const Error& error) {
      refused += (refused.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  Table* table = map(-1, MAP_SHARED | MAP_ANONYMOUS);
  if (table == nullptr) throw std::bad_alloc();
  make_table(*table);
  return {table, "", refused};
}

}  // namespace oddrank::printing

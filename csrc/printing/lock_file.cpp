// Makes or joins the lock file. Processes share the mapping; no descriptor stays open.
#include "printing/lock_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <new>

#include "os/error.hpp"
#include "os/private_folder.hpp"
#include "os/proc.hpp"

namespace oddrank::printing {
namespace {

constexpr int kMakeMilliseconds = 1000;

// One file per boot, for many hosts may mount $ODDRANK_DIR, and per pid namespace, for containers
// may share /dev/shm and a holder is looked up by its pid.
std::string file_name() {
  const std::string boot = boot_id();
  return std::string("printflock-") + kVersion + "-" + std::to_string(sizeof(pthread_mutex_t)) +
         "-" + std::to_string(pid_namespace()) + "-" + (boot.empty() ? "host" : boot);
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

// Locks the file while it is made. Waits a second at most: its maker may be stopped.
void lock_to_make(int file) {
  const int error = lock_exclusively(file, Deadline::after_ms(kMakeMilliseconds));
  if (error == EWOULDBLOCK) {
    throw Error("another process is making the lock file and does not finish");
  }
  if (error != 0) throw SystemError("flock", error);
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
    // Allocates the blocks now: a full /dev/shm is an error here and no SIGBUS later.
    if (const int error = ::posix_fallocate(file.get(), 0, sizeof(Table)); error != 0)
      throw SystemError("make room for the lock file", error);
    table = map_file(file.get());
  }
  // The maker may have died: a table without its magic is in no use and is made again.
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

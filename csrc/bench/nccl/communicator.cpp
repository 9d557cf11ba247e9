// Makes, polls, ends and aborts communicators, in threads where a call may never return; allocates
// and registers their memory.
#include "bench/nccl/communicator.hpp"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "cuda/resources.hpp"
#include "os/error.hpp"

namespace oddrank::nccl {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(1);
constexpr std::int64_t kAbortPatienceMs = 2000;

// Throws NCCL's asynchronous error. Returns false while NCCL is still at work.
bool is_ready(const Api& api, ncclComm_t comm, const char* call) {
  ncclResult_t state = ncclSuccess;
  check(api.CommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
  check(state, call, comm);
  return state != ncclInProgress;
}

void zero(char* data, std::size_t bytes, Deadline deadline) {
  if (bytes == 0) return;
  cuda::Stream stream;
  ODDRANK_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, stream.get()));
  cuda::wait_or_abandon(stream, deadline, "cudaMemsetAsync");
}

std::string left_behind(const char* call, int rank) {
  return std::string(call) + ": the communicator was not ended before the deadline (rank " +
         std::to_string(rank) + "); it is left behind";
}

}  // namespace

std::string obstacle() {
  const char* blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking == nullptr || *blocking == '\0') return {};
  return "NCCL_COMM_BLOCKING is set, and overrules how oddrank makes its communicators: unset it";
}

UniqueId make_unique_id() {
  ncclUniqueId id{};
  check(loaded().GetUniqueId(&id), "ncclGetUniqueId");
  UniqueId bytes{};
  std::copy(std::begin(id.internal), std::end(id.internal), bytes.begin());
  return bytes;
}

Communicator::Communicator(const UniqueId& id, int rank, int world, int device, Deadline deadline)
    : api_(loaded()), rank_(rank), world_(world) {
  if (const std::string why = obstacle(); !why.empty()) throw Error(why);
  const cuda::OnDevice chosen(device);
  device_ = cuda::current_device();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId nccl_id{};
  std::copy(id.begin(), id.end(), std::begin(nccl_id.internal));
  try {
    ncclComm_t made = nullptr;
    const ncclResult_t result = api_.CommInitRankConfig(&made, world, nccl_id, rank, &config);
    comm_ = made;
    check(result, "ncclCommInitRankConfig");
    wait_until_ready(comm_, "ncclCommInitRankConfig", deadline);
    make_direct(deadline);
  } catch (...) {
    abort();  // the destructor does not run
    throw;
  }
}

void Communicator::make_direct(Deadline deadline) {
  if (api_.CommSplit == nullptr) return;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  // NCCL writes here from a thread of its own: at a deadline, perhaps after we are gone.
  auto twin = std::make_unique<ncclComm_t>(nullptr);
  try {
    check(api_.CommSplit(comm_, 0, rank_, twin.get(), &config), "ncclCommSplit", comm_);
    wait_until_ready(comm_, "ncclCommSplit", deadline);
  } catch (...) {
    static_cast<void>(twin.release());
    throw;
  }
  if (*twin == nullptr) return;
  const ncclComm_t first = comm_.exchange(*twin);
  direct_ = true;
  check(api_.CommFinalize(first), "ncclCommFinalize", first);
  wait_until_ready(first, "ncclCommFinalize", deadline);
  destroy(first, deadline);
}

// NCCL waits inside this call, for any configuration of the communicator.
void Communicator::destroy(ncclComm_t comm, Deadline deadline) const {
  const bool ended = finished_by(
      deadline, device_, [&api = api_, comm] { check(api.CommDestroy(comm), "ncclCommDestroy"); });
  if (!ended) throw Error(left_behind("ncclCommDestroy", rank_));
}

bool Communicator::ready(const char* call) const { return is_ready(api_, comm_, call); }

void Communicator::wait_until_ready(ncclComm_t comm, const char* call, Deadline deadline) {
  while (!is_ready(api_, comm, call)) {
    if (deadline.passed()) {
      abort();
      throw Error(std::string(call) + ": the " + std::to_string(world_) +
                  " ranks did not agree before the deadline (rank " + std::to_string(rank_) +
                  "). A rank is missing or NCCL can't reach it: check NCCL_SOCKET_IFNAME, run with "
                  "NCCL_DEBUG=INFO");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

void Communicator::settle(ncclResult_t result, const char* call, Deadline deadline) {
  check(result, call, comm_);
  // Only a communicator that is not direct is at work here, for some 20 us: no sleep.
  while (!ready(call)) {
    if (deadline.passed()) {
      abort();
      throw Error(std::string(call) + ": NCCL did not start it before the deadline (rank " +
                  std::to_string(rank_) + "); the communicator was aborted");
    }
    std::this_thread::yield();
  }
}

void Communicator::close(Deadline deadline) {
  if (comm_ == nullptr) return;
  if (direct_) {
    // These block: in a thread that may be left behind, with a communicator that may be, too.
    const ncclComm_t comm = comm_.exchange(nullptr);
    const std::string late = left_behind("ncclCommFinalize", rank_);
    const bool ended = finished_by(deadline, device_, [&api = api_, comm, deadline, late] {
      check(api.CommFinalize(comm), "ncclCommFinalize", comm);
      // NCCL's own files of settings (nccl.conf) can make it non-blocking, too.
      while (!is_ready(api, comm, "ncclCommFinalize")) {
        if (deadline.passed()) throw Error(late);
        std::this_thread::sleep_for(kPoll);
      }
      check(api.CommDestroy(comm), "ncclCommDestroy");
    });
    if (!ended) throw Error(late);
    return;
  }
  const cuda::OnDevice chosen(device_);
  try {
    check(api_.CommFinalize(comm_), "ncclCommFinalize", comm_);
    wait_until_ready(comm_, "ncclCommFinalize", deadline);
  } catch (...) {
    abort();
    throw;
  }
  destroy(comm_.exchange(nullptr), deadline);
}

void Communicator::abort() noexcept {
  const ncclComm_t comm = comm_.exchange(nullptr);
  if (comm == nullptr) return;
  try {
    // On its device where that can be selected. On a lost GPU it can't: NCCL sets its flags, which
    // end its threads and the other ranks' waits, before it touches the device.
    finished_by(Deadline::after_ms(kAbortPatienceMs), -1,
                [abort = api_.CommAbort, comm, device = device_] {
                  if (device >= 0) cudaSetDevice(device);
                  abort(comm);
                });
  } catch (const std::exception&) {
    // No thread can be started: leave the communicator as it is rather than risk a hang.
    return;
  }
}

bool finished_by(Deadline deadline, int device, std::function<void()> call) {
  // A promise, not std::async: the future of async waits for its thread.
  std::promise<void> promise;
  auto done = promise.get_future();
  try {
    std::thread([device, call = std::move(call), promise = std::move(promise)]() mutable {
      try {
        if (device >= 0) cuda::select_device(device);
        call();
        call = nullptr;  // frees its objects before the waiter goes on
        promise.set_value();
      } catch (...) {
        call = nullptr;
        promise.set_exception(std::current_exception());
      }
    }).detach();
  } catch (const std::system_error& error) {
    throw Error(std::string("no thread can be started: ") + error.what());
  }
  const auto left =
      std::chrono::nanoseconds(std::max<std::int64_t>(0, deadline.ns() - monotonic_ns()));
  if (done.wait_for(left) != std::future_status::ready) return false;
  done.get();
  return true;
}

Registration registration_of(const std::string& name) {
  if (name.empty()) return Registration::kNone;
  if (name == "buffer") return Registration::kBuffer;
  if (name == "window") return Registration::kWindow;
  throw Error("registration \"" + name + "\" is neither buffer nor window");
}

Memory::Memory(std::shared_ptr<Communicator> communicator, std::size_t bytes,
               Registration registration, Deadline deadline)
    : communicator_(std::move(communicator)), registration_(registration) {
  const Api& api = communicator_->api();
  if (communicator_->get() == nullptr) throw Error("the communicator is closed");
  by_nccl_ = api.MemAlloc != nullptr && api.MemFree != nullptr;
  if (registration_ == Registration::kBuffer &&
      (api.CommRegister == nullptr || api.CommDeregister == nullptr)) {
    throw Error("NCCL " + version_text(api.version) +
                " can't register buffers, 2.19 can: leave out --register");
  }
  if (registration_ == Registration::kWindow &&
      (!by_nccl_ || api.CommWindowRegister == nullptr || api.CommWindowDeregister == nullptr)) {
    throw Error("NCCL " + version_text(api.version) +
                " has no symmetric windows, 2.27 has: leave out --register window");
  }
  const cuda::OnDevice chosen(communicator_->device());
  try {
    allocate(bytes);
    make_known(deadline);
    try {
      zero(data_, bytes_, deadline);
    } catch (...) {
      abandon();  // the GPU may still write there
      throw;
    }
  } catch (...) {
    free();
    throw;
  }
}

void Memory::allocate(std::size_t bytes) {
  const Api& api = communicator_->api();
  const ncclComm_t comm = communicator_->get();
  void* data = nullptr;
  if (by_nccl_) {
    check(api.MemAlloc(&data, bytes), "ncclMemAlloc", comm);
  } else {
    ODDRANK_CUDA_CHECK(cudaMalloc(&data, bytes));
  }
  data_ = static_cast<char*>(data);
  bytes_ = bytes;
}

void Memory::make_known(Deadline deadline) {
  if (registration_ == Registration::kWindow) make_window(deadline);
  if (registration_ != Registration::kBuffer) return;
  const ncclComm_t comm = communicator_->get();
  const ncclResult_t result = communicator_->api().CommRegister(comm, data_, bytes_, &handle_);
  if (result != ncclSuccess) {
    handle_ = nullptr;
    check(result, "ncclCommRegister", comm);
  }
}

// Waits inside the call until all ranks have called it, so it runs in a thread that can be left
// behind. NCCL wants whole pages: its allocation has them.
void Memory::make_window(Deadline deadline) {
  constexpr const char* kCall = "ncclCommWindowRegister";
  constexpr std::size_t kPage = 4096;  // NCCL_WIN_REQUIRED_ALIGNMENT
  constexpr int kSymmetric = 1;        // NCCL_WIN_COLL_SYMMETRIC
  const std::size_t size = (bytes_ + kPage - 1) / kPage * kPage;
  auto window = std::make_shared<void*>(nullptr);
  const bool back = finished_by(
      deadline, communicator_->device(),
      [communicator = communicator_, data = data_, size, window, deadline] {
        const auto call = communicator->api().CommWindowRegister;
        communicator->issued(call(communicator->get(), data, size, window.get(), kSymmetric), kCall,
                             deadline);
      });
  if (!back) {
    abandon();
    communicator_->abandon();
    throw Error(std::string(kCall) + " did not end before the deadline; " + cuda::place() +
                ". A rank is missing or asks for another registration");
  }
  handle_ = *window;
  if (handle_ == nullptr) {
    throw Error(std::string(kCall) +
                " made no window: these GPUs or settings have no symmetric memory "
                "(NCCL_CUMEM_ENABLE=0, NCCL_WIN_ENABLE=0, no NVLink between them): leave out "
                "--register window");
  }
}

void Memory::free() noexcept {
  if (data_ == nullptr) return;
  const int before = cuda::current_device();
  if (communicator_->device() >= 0) cudaSetDevice(communicator_->device());
  const Api& api = communicator_->api();
  // An aborted communicator has let go of its registrations.
  const ncclComm_t comm = communicator_->get();
  if (handle_ != nullptr && comm != nullptr) {
    if (registration_ == Registration::kWindow) {
      api.CommWindowDeregister(comm, handle_);
    } else {
      api.CommDeregister(comm, handle_);
    }
  }
  if (by_nccl_) {
    api.MemFree(data_);
  } else {
    cudaFree(data_);
  }
  if (before >= 0) cudaSetDevice(before);
  cudaGetLastError();
  abandon();
}

}  // namespace oddrank::nccl

// Allocates, registers and frees the memory of collectives.
#include "bench/nccl/memory.hpp"

#include <utility>

#include "cuda/resources.hpp"
#include "os/error.hpp"

namespace oddrank::nccl {
namespace {

void zero(const Communicator& communicator, char* data, std::size_t bytes, Deadline deadline) {
  if (bytes == 0) return;
  cuda::Stream stream;
  ODDRANK_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, stream.get()));
  if (stream.wait(deadline)) return;
  stream.abandon();
  throw Error("cudaMemsetAsync: the GPU did not finish before the deadline; " + cuda::place() +
              ", rank " + std::to_string(communicator.rank()) + " of the communicator");
}

}  // namespace

Memory::Memory(std::shared_ptr<Communicator> communicator, std::size_t bytes, bool registered,
               Deadline deadline)
    : communicator_(std::move(communicator)), registered_(registered) {
  const Api& api = communicator_->api();
  if (communicator_->get() == nullptr) throw Error("the communicator is closed");
  by_nccl_ = api.MemAlloc != nullptr && api.MemFree != nullptr;
  if (registered && (api.CommRegister == nullptr || api.CommDeregister == nullptr)) {
    throw Error("NCCL " + version_text(api.version) +
                " can't register buffers, 2.19 can: leave out --register");
  }
  if (communicator_->device() >= 0) cuda::select_device(communicator_->device());
  try {
    allocate(bytes);
    try {
      zero(*communicator_, data_, bytes_, deadline);
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
  if (registered_) {
    const ncclResult_t result = api.CommRegister(comm, data, bytes, &handle_);
    if (result != ncclSuccess) {
      handle_ = nullptr;
      check(result, "ncclCommRegister", comm);
    }
  }
}

void Memory::free() noexcept {
  if (data_ == nullptr) return;
  if (communicator_->device() >= 0) cudaSetDevice(communicator_->device());
  const Api& api = communicator_->api();
  // An aborted communicator has let go of its registrations.
  const ncclComm_t comm = communicator_->get();
  if (handle_ != nullptr && comm != nullptr) api.CommDeregister(comm, handle_);
  if (by_nccl_) {
    api.MemFree(data_);
  } else {
    cudaFree(data_);
  }
  cudaGetLastError();
  abandon();
}

}  // namespace oddrank::nccl

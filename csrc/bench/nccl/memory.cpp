// Allocates, registers and frees the memory of collectives.
#include "bench/nccl/memory.hpp"

#include <utility>

#include "base/error.hpp"
#include "cuda/buffer.hpp"
#include "cuda/stream.hpp"

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

Memory::Memory(std::shared_ptr<Communicator> communicator, std::size_t send_bytes,
               std::size_t recv_bytes, bool registered, Deadline deadline)
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
    send_ = allocate(send_bytes);
    recv_ = allocate(recv_bytes);
    try {
      zero(*communicator_, send_.data, send_.bytes, deadline);
      zero(*communicator_, recv_.data, recv_.bytes, deadline);
    } catch (...) {
      abandon();  // the GPU may still write there
      throw;
    }
  } catch (...) {
    free();
    throw;
  }
}

Memory::Part Memory::allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  const Api& api = communicator_->api();
  const ncclComm_t comm = communicator_->get();
  Part part;
  part.bytes = bytes;
  void* data = nullptr;
  if (by_nccl_) {
    check(api.MemAlloc(&data, bytes), "ncclMemAlloc", comm);
  } else {
    ODDRANK_CUDA_CHECK(cudaMalloc(&data, bytes));
  }
  part.data = static_cast<char*>(data);
  if (registered_) {
    const ncclResult_t result = api.CommRegister(comm, data, bytes, &part.handle);
    if (result != ncclSuccess) {
      part.handle = nullptr;
      free(part);
      check(result, "ncclCommRegister", comm);
    }
  }
  return part;
}

void Memory::free(Part& part) noexcept {
  const Part gone = std::exchange(part, {});
  if (gone.data == nullptr) return;
  const Api& api = communicator_->api();
  // An aborted communicator has let go of its registrations.
  const ncclComm_t comm = communicator_->get();
  if (gone.handle != nullptr && comm != nullptr) api.CommDeregister(comm, gone.handle);
  if (by_nccl_) {
    api.MemFree(gone.data);
  } else {
    cudaFree(gone.data);
  }
  cudaGetLastError();
}

void Memory::free() noexcept {
  if (communicator_->device() >= 0) cudaSetDevice(communicator_->device());
  free(send_);
  free(recv_);
}

}  // namespace oddrank::nccl

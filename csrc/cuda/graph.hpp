// An owned executable CUDA graph, captured from a stream.
// C++17: included by .cu files.
#pragma once

#include <utility>

#include "cuda/stream.hpp"

namespace oddrank::cuda {

// Work that is launched by one call. What it holds (NCCL's operations do) is let go when it goes.
class Graph {
 public:
  // `work(stream)` puts work on the stream, which is not done but captured; what it throws is
  // thrown here, and the stream is usable again. Only this thread is kept from calls that would
  // spoil a capture (cudaMalloc and kin): NCCL may need them in threads of its own.
  template <class Work>
  static Graph capture(const Stream& stream, const Work& work) {
    ODDRANK_CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    Captured captured;
    try {
      work(stream.get());
    } catch (...) {
      cudaStreamEndCapture(stream.get(), &captured.graph);
      cudaGetLastError();
      throw;
    }
    ODDRANK_CUDA_CHECK(cudaStreamEndCapture(stream.get(), &captured.graph));
    Graph graph;
    // Not cudaGraphInstantiate, whose arguments changed with CUDA 12.
    ODDRANK_CUDA_CHECK(cudaGraphInstantiateWithFlags(&graph.executable_, captured.graph, 0));
    return graph;
  }

  Graph() = default;
  Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
  }
  ~Graph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }

  explicit operator bool() const noexcept { return executable_ != nullptr; }
  void launch(cudaStream_t stream) const {
    ODDRANK_CUDA_CHECK(cudaGraphLaunch(executable_, stream));
  }

 private:
  struct Captured {
    ~Captured() {
      if (graph != nullptr) cudaGraphDestroy(graph);
    }
    cudaGraph_t graph = nullptr;
  };

  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace oddrank::cuda

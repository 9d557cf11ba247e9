// oddrank._cuda: the module that is built where nvcc and nccl.h are. A list of its parts and
// nothing else. Importing it calls neither CUDA nor NCCL: a process that has touched CUDA can't be
// forked.
#include <pybind11/pybind11.h>

#include "modules/begin_module.hpp"

// Each is defined in its subject's bind_cuda*.cpp.
namespace oddrank {
void bind_cuda(pybind11::module_& m);
void bind_cuda_bench(pybind11::module_& m);
void bind_cuda_replicas(pybind11::module_& m);
void bind_cuda_selftest(pybind11::module_& m);
}  // namespace oddrank

PYBIND11_MODULE(_cuda, m) {
  m.doc() = "oddrank's GPU and NCCL parts. Use the functions of `oddrank` instead.";
  oddrank::begin_module(m);
  m.attr("build_info")["nvcc"] = ODDRANK_NVCC;
  m.attr("build_info")["architectures"] = ODDRANK_ARCHITECTURES;
  m.attr("build_info")["nccl_header"] = ODDRANK_NCCL_HEADER;
  oddrank::bind_cuda(m);
  oddrank::bind_cuda_bench(m);
  oddrank::bind_cuda_replicas(m);
  oddrank::bind_cuda_selftest(m);
}

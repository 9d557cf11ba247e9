// oddrank._cuda: the module that is built where nvcc and nccl.h are. A list of its parts and
// nothing else. Importing it calls neither CUDA nor NCCL: a process that has touched CUDA can't be
// forked.
#include <pybind11/pybind11.h>

#include "bench/bind_cuda.hpp"
#include "cuda/bind_cuda.hpp"
#include "modules/module.hpp"
#include "selftest/bind_cuda.hpp"

PYBIND11_MODULE(_cuda, m) {
  m.doc() = "oddrank's GPU and NCCL parts. Use the functions of `oddrank` instead.";
  oddrank::begin_module(m);
  m.attr("build_info")["nvcc"] = ODDRANK_NVCC;
  m.attr("build_info")["architectures"] = ODDRANK_ARCHITECTURES;
  m.attr("build_info")["nccl_header"] = ODDRANK_NCCL_HEADER;
  oddrank::bind_cuda(m);
  oddrank::bind_bench_cuda(m);
  oddrank::bind_selftest_cuda(m);
}

// Bindings of csrc/replicas that run everywhere: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "os/cpython.hpp"
#include "os/to_python.hpp"
#include "replicas/tensors.hpp"

namespace oddrank {
namespace {

// (address, bytes of an element, sizes, strides in elements)
using Description =
    std::tuple<std::uintptr_t, std::size_t, std::vector<std::int64_t>, std::vector<std::int64_t>>;

replicas::Tensor tensor_of(const Description& one) {
  return {std::get<0>(one), std::get<1>(one), std::get<2>(one), std::get<3>(one)};
}

py::bytes bytes_of(const std::vector<replicas::Digest>& digests) {
  return {reinterpret_cast<const char*>(digests.data()), digests.size() * sizeof(replicas::Digest)};
}

}  // namespace

void bind_replicas(py::module_& m) {
  m.attr("REPLICAS_CHUNK") = replicas::kChunkBytes;
  m.def(
      "digest_tensors",
      [](const std::vector<Description>& tensors, int threads) {
        std::vector<replicas::Tensor> all;
        all.reserve(tensors.size());
        for (const Description& one : tensors) all.push_back(tensor_of(one));
        return bytes_of(without_gil([&] { return replicas::digest_tensors(all, threads); }));
      },
      "tensors"_a, "threads"_a = 1,
      "Returns 16 bytes for each tensor in host memory: (address, bytes of an element, sizes, "
      "strides in elements).");
  m.def(
      "digest_blocks",
      [](const Description& tensor, std::uint64_t block, std::uint64_t begin, std::uint64_t end,
         int threads) {
        const replicas::Tensor one = tensor_of(tensor);
        return bytes_of(
            without_gil([&] { return replicas::digest_blocks(one, block, begin, end, threads); }));
      },
      "tensor"_a, "block"_a, "begin"_a, "end"_a, "threads"_a = 1,
      "Returns 16 bytes for each block of `block` bytes that begins in [begin, end) of a tensor's "
      "bytes. block: a multiple of REPLICAS_CHUNK; begin: a multiple of block.");
  m.def(
      "tensor_bytes",
      [](const Description& tensor, std::uint64_t begin, std::uint64_t end) {
        const replicas::Tensor one = tensor_of(tensor);
        if (end > replicas::checked_bytes(one)) end = replicas::checked_bytes(one);
        std::string copy(end - std::min(begin, end), '\0');
        replicas::copy_bytes(one, begin, end, reinterpret_cast<unsigned char*>(copy.data()));
        return py::bytes(copy);
      },
      "tensor"_a, "begin"_a, "end"_a,
      "Returns bytes [begin, end) of a tensor's elements in row-major order.");
}

}  // namespace oddrank

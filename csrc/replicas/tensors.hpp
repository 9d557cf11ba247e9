// Digests of tensors in host memory, by several threads, whole or block by block.
#pragma once

#include <vector>

#include "replicas/digest.hpp"

namespace oddrank::replicas {

// A tensor as torch describes it. Its memory must stay as it is during a call.
struct Tensor {
  std::uintptr_t data = 0;
  std::size_t element = 0;            // bytes: 1, 2, 4, 8 or 16
  std::vector<std::int64_t> sizes;    // empty: one element
  std::vector<std::int64_t> strides;  // in elements; 0 repeats an element
};

// Returns the bytes of all elements. Throws Error if sizes and strides describe no tensor.
std::uint64_t checked_bytes(const Tensor& tensor);

// Returns the digest of each tensor. threads: how many may compute; small work takes fewer. Throws
// Error as checked_bytes().
std::vector<Digest> digest_tensors(const std::vector<Tensor>& tensors, int threads);

// Returns the digest of each block of `block` bytes (a multiple of kChunkBytes) that begins within
// [begin, end) of the tensor's bytes; begin is a multiple of `block`. The last block may be
// shorter.
std::vector<Digest> digest_blocks(const Tensor& tensor, std::uint64_t block, std::uint64_t begin,
                                  std::uint64_t end, int threads);

// Copies bytes [begin, end) of the tensor's elements, in row-major order. Throws Error if they are
// no whole elements of it.
void copy_bytes(const Tensor& tensor, std::uint64_t begin, std::uint64_t end, unsigned char* to);

}  // namespace oddrank::replicas

// Kernels that copy the pattern out of its table, and compare with it.
#include <algorithm>
#include <string>

#include "bench/verify/verify.hpp"
#include "cuda/resources.hpp"
#include "os/error.hpp"

namespace oddrank::bench {
namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kBlocksPerProcessor = 4;  // 2048 threads: what one multiprocessor holds

// Filled by the GPU. A healthy run never touches it.
struct Found {
  unsigned long long wrong;
  unsigned long long first;  // from the segment's begin
};

// The part of one block of the pattern that lies in the segment. A group of threads takes whole
// blocks: the division and the hash are done once in 4093 elements.
struct Part {
  std::uint64_t offset;  // of the block's begin from the segment's; wraps below 0 in the first one
  unsigned from, to;     // within the block
};

__device__ Part part_of(std::uint64_t block, std::uint64_t first, std::uint64_t count) {
  const std::uint64_t begin = block * kSlots;
  const std::uint64_t end = first + count;
  return {begin - first, begin < first ? static_cast<unsigned>(first - begin) : 0,
          end - begin < kSlots ? static_cast<unsigned>(end - begin) : kSlots};
}

template <class Word>
__global__ void write_table(Word* data, const Word* __restrict__ table, std::uint64_t first,
                            std::uint64_t count) {
  const std::uint64_t last = (first + count - 1) / kSlots;
  for (std::uint64_t block = first / kSlots + blockIdx.x; block <= last; block += gridDim.x) {
    const Part part = part_of(block, first, count);
    const Word* const values = table + first_slot(block);
    for (unsigned k = part.from + threadIdx.x; k < part.to; k += blockDim.x) {
      data[part.offset + k] = values[k];
    }
  }
}

template <class Word>
__global__ void compare_table(const Word* __restrict__ data, const Word* __restrict__ low,
                              const Word* __restrict__ high, Word negative_zero,
                              std::uint64_t first, std::uint64_t count, Found* found) {
  unsigned long long wrong = 0;
  unsigned long long first_wrong = 0;
  const std::uint64_t last = (first + count - 1) / kSlots;
  for (std::uint64_t block = first / kSlots + blockIdx.x; block <= last; block += gridDim.x) {
    const Part part = part_of(block, first, count);
    const unsigned slot = first_slot(block);
    for (unsigned k = part.from + threadIdx.x; k < part.to; k += blockDim.x) {
      const Word got = data[part.offset + k];
      const Word least = low[slot + k];
      const auto above = static_cast<Word>(got - least);
      const auto room = static_cast<Word>(high[slot + k] - least);
      if (above <= room || (got == negative_zero && least == 0)) continue;
      if (wrong++ == 0) first_wrong = part.offset + k;  // a thread's indices only grow
    }
  }
  if (wrong == 0) return;
  atomicAdd(&found->wrong, wrong);
  atomicMin(&found->first, first_wrong);
}

unsigned grid_of(int device, const Segment& segment) {
  int processors = 0;
  ODDRANK_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const std::uint64_t blocks = segment.count / kSlots + 2;
  return static_cast<unsigned>(std::min<std::uint64_t>(
      blocks, std::uint64_t{kBlocksPerProcessor} * static_cast<unsigned>(processors)));
}

void launched(const char* kernel) { cuda::check(cudaGetLastError(), kernel); }

// An address of another GPU or of the host would break the context for good.
void need(int device, std::uintptr_t address, const Segment& segment) {
  const unsigned size = traits(segment.dtype).size;
  if (address % size != 0) {
    throw Error("the buffer's address is no multiple of " + std::to_string(size) + " bytes, as " +
                std::string(traits(segment.dtype).name) + " needs on a GPU");
  }
  cudaPointerAttributes attributes{};
  if (address != 0) {  // which CUDA may call an invalid value
    ODDRANK_CUDA_CHECK(cudaPointerGetAttributes(&attributes, reinterpret_cast<void*>(address)));
  }
  const bool ours = attributes.type == cudaMemoryTypeManaged ||
                    (attributes.type == cudaMemoryTypeDevice && attributes.device == device);
  if (!ours) throw Error("the buffer is not in the memory of GPU " + std::to_string(device));
}

// The stream ends first, then the memory is freed: cudaFree of memory in use waits without a
// deadline.
class Work {
 public:
  Work(const Table& table, Deadline deadline)
      : bytes_(table.bytes()),
        tables_(table.exact() ? bytes_ : 2 * bytes_),
        found_(sizeof(Found)),
        deadline_(deadline) {
    upload(0, table.low());
    if (!table.exact()) upload(bytes_, table.high());
    const Found none{0, ~0ULL};
    ODDRANK_CUDA_CHECK(
        cudaMemcpyAsync(found(), &none, sizeof none, cudaMemcpyHostToDevice, stream()));
  }

  template <class Word>
  const Word* low() const noexcept {
    return tables_.as<Word>();
  }
  template <class Word>
  const Word* high() const noexcept {
    const bool exact = tables_.bytes() == bytes_;
    return exact ? low<Word>() : low<Word>() + bytes_ / sizeof(Word);
  }
  Found* found() const noexcept { return found_.as<Found>(); }
  cudaStream_t stream() const noexcept { return stream_.get(); }

  void wait(const char* what) {
    if (stream_.wait(deadline_)) return;
    tables_.abandon();
    found_.abandon();
    stream_.abandon();
    throw Error(std::string(what) + ": the GPU did not finish before the deadline; " +
                cuda::place());
  }

 private:
  void upload(std::size_t offset, const std::byte* table) {
    ODDRANK_CUDA_CHECK(cudaMemcpyAsync(tables_.as<std::byte>() + offset, table, bytes_,
                                       cudaMemcpyHostToDevice, stream()));
  }

  std::size_t bytes_;
  cuda::Buffer tables_, found_;
  cuda::Stream stream_;
  Deadline deadline_;
};

template <class Word>
void fill_words(int device, std::uintptr_t address, const Segment& segment, Deadline deadline) {
  const Table table = Table::of_contribution(segment);
  Work work(table, deadline);
  write_table<Word><<<grid_of(device, segment), kThreads, 0, work.stream()>>>(
      reinterpret_cast<Word*>(address), work.low<Word>(), segment.first, segment.count);
  launched("launch of write_table");
  work.wait("fill");
}

template <class Word>
Mismatch check_words(int device, std::uintptr_t address, const Segment& segment,
                     Deadline deadline) {
  const auto* const data = reinterpret_cast<const Word*>(address);
  const Table table = Table::of_result(segment);
  Work work(table, deadline);
  compare_table<Word><<<grid_of(device, segment), kThreads, 0, work.stream()>>>(
      data, work.low<Word>(), work.high<Word>(), static_cast<Word>(table.negative_zero()),
      segment.first, segment.count, work.found());
  launched("launch of compare_table");
  // Wait before the copy: a copy to pageable memory waits inside the driver, without a deadline.
  work.wait("check");
  Found found;
  ODDRANK_CUDA_CHECK(cudaMemcpy(&found, work.found(), sizeof found, cudaMemcpyDeviceToHost));
  if (found.wrong == 0) return {};
  Word got;
  ODDRANK_CUDA_CHECK(cudaMemcpy(&got, data + found.first, sizeof got, cudaMemcpyDeviceToHost));
  return {found.wrong, static_cast<std::int64_t>(found.first),
          table.value_at(segment.first + found.first), decode(segment.dtype, got)};
}

}  // namespace

void fill_on_device(int device, std::uintptr_t address, const Segment& segment, Deadline deadline) {
  if (segment.count == 0) return;
  cuda::select_device(device);
  need(device, address, segment);
  switch (traits(segment.dtype).size) {
    case 1:
      return fill_words<std::uint8_t>(device, address, segment, deadline);
    case 2:
      return fill_words<std::uint16_t>(device, address, segment, deadline);
    case 4:
      return fill_words<std::uint32_t>(device, address, segment, deadline);
    default:
      return fill_words<std::uint64_t>(device, address, segment, deadline);
  }
}

Mismatch check_on_device(int device, std::uintptr_t address, const Segment& segment,
                         Deadline deadline) {
  if (segment.count == 0) return {};
  cuda::select_device(device);
  need(device, address, segment);
  switch (traits(segment.dtype).size) {
    case 1:
      return check_words<std::uint8_t>(device, address, segment, deadline);
    case 2:
      return check_words<std::uint16_t>(device, address, segment, deadline);
    case 4:
      return check_words<std::uint32_t>(device, address, segment, deadline);
    default:
      return check_words<std::uint64_t>(device, address, segment, deadline);
  }
}

}  // namespace oddrank::bench

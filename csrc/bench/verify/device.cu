// Kernels that copy the pattern out of its tables, compare with them (all segments in one launch,
// through memory that each device keeps), and write random values.
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "bench/verify/verify.hpp"
#include "cuda/resources.hpp"
#include "os/error.hpp"

namespace oddrank::bench {
namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kBlocksPerProcessor = 4;  // fills a multiprocessor: 2048 threads
// Bytes of the tables of one launch. Segments whose tables need more take several launches.
constexpr std::size_t kMostTables = std::size_t{32} << 20;
constexpr std::size_t kAlignment = 256;

// Filled by the GPU. A healthy run never touches it.
struct Found {
  unsigned long long wrong;
  unsigned long long first;  // from the segment's begin
};

// A segment as the GPU sees it. Tables are numbered by their bytes from the first one.
struct Piece {
  std::uintptr_t address;
  std::uint64_t first;
  std::uint64_t count;
  std::uint64_t blocks_before;  // blocks of the pattern in all pieces before this one
  std::uint64_t low, high;
};

// Data of all pieces of a launch. `blocks`: blocks of the pattern in all of them.
struct Launch {
  const Piece* pieces;
  unsigned number;
  std::uint64_t blocks;
  const unsigned char* tables;
  Found* found;
};

// The part of one block of the pattern that lies in the segment. A group of threads takes whole
// blocks: the search, the division and the hash are done once in 4093 elements.
struct Part {
  unsigned piece;
  unsigned slot;
  std::uint64_t offset;  // from the segment's begin to the block's; wraps below 0 in the first one
  unsigned from, to;     // within the block
};

__device__ Part part_of(const Launch& launch, std::uint64_t number) {
  unsigned low = 0, high = launch.number;  // the last piece that begins at or before it
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (launch.pieces[middle].blocks_before <= number ? low : high) = middle;
  }
  const Piece& piece = launch.pieces[low];
  const std::uint64_t block = piece.first / kSlots + (number - piece.blocks_before);
  const std::uint64_t begin = block * kSlots;
  const std::uint64_t end = piece.first + piece.count;
  return {low, first_slot(block), begin - piece.first,
          begin < piece.first ? static_cast<unsigned>(piece.first - begin) : 0,
          end - begin < kSlots ? static_cast<unsigned>(end - begin) : kSlots};
}

template <class Word>
__global__ void write_table(Launch launch) {
  for (std::uint64_t block = blockIdx.x; block < launch.blocks; block += gridDim.x) {
    const Part part = part_of(launch, block);
    const Piece& piece = launch.pieces[part.piece];
    auto* const data = reinterpret_cast<Word*>(piece.address);
    const Word* const values = reinterpret_cast<const Word*>(launch.tables + piece.low) + part.slot;
    for (unsigned k = part.from + threadIdx.x; k < part.to; k += blockDim.x) {
      data[part.offset + k] = values[k];
    }
  }
}

template <class Word>
__global__ void compare_table(Launch launch, Word negative_zero) {
  for (std::uint64_t block = blockIdx.x; block < launch.blocks; block += gridDim.x) {
    const Part part = part_of(launch, block);
    const Piece& piece = launch.pieces[part.piece];
    const auto* const data = reinterpret_cast<const Word*>(piece.address);
    const Word* const low = reinterpret_cast<const Word*>(launch.tables + piece.low) + part.slot;
    const Word* const high = reinterpret_cast<const Word*>(launch.tables + piece.high) + part.slot;
    unsigned long long wrong = 0;
    unsigned long long first_wrong = 0;
    for (unsigned k = part.from + threadIdx.x; k < part.to; k += blockDim.x) {
      const Word got = data[part.offset + k];
      const Word least = low[k];
      const auto above = static_cast<Word>(got - least);
      const auto room = static_cast<Word>(high[k] - least);
      if (above <= room || (got == negative_zero && least == 0)) continue;
      if (wrong++ == 0) first_wrong = part.offset + k;  // a thread's indices only grow
    }
    if (wrong == 0) continue;
    atomicAdd(&launch.found[part.piece].wrong, wrong);
    atomicMin(&launch.found[part.piece].first, first_wrong);
  }
}

__global__ void write_noise(unsigned char* data, std::uint64_t bytes, Noise noise) {
  const std::uint64_t words = bytes / 8;
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  const std::uint64_t first = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::uint64_t i = first; i < words; i += step) {
    reinterpret_cast<std::uint64_t*>(data)[i] = noise_word(noise, i);
  }
  if (first >= bytes % 8) return;
  data[words * 8 + first] = static_cast<unsigned char>(noise_word(noise, words) >> (8 * first));
}

unsigned grid_of(int device, std::uint64_t blocks) {
  return static_cast<unsigned>(std::min<std::uint64_t>(
      blocks, std::uint64_t{kBlocksPerProcessor} * cuda::multiprocessors(device)));
}

void need(int device, std::uintptr_t address, unsigned size, std::string_view who) {
  if (address % size != 0) {
    throw Error("the buffer's address is no multiple of " + std::to_string(size) + " bytes, as " +
                std::string(who) + " needs on a GPU");
  }
  cuda::need_memory_of(device, address, "the buffer");
}

// A device's stream, and memory on both sides for pieces, results and tables: uploaded in one copy,
// and kept, for allocating and freeing would wait for the whole device each time. Locked while a
// call uses it.
class Workspace {
 public:
  // Returns the staging memory, at least `bytes`, which upload() copies.
  std::byte* stage(std::size_t bytes) {
    if (host_ == nullptr || size_ < bytes) {
      const std::size_t size = std::max(bytes, 2 * size_);
      device_.reset(), host_.reset();  // idle: the last call has waited for its work
      size_ = 0;
      host_ = std::make_unique<cuda::PinnedBuffer>(size);
      device_ = std::make_unique<cuda::Buffer>(size);
      size_ = size;
    }
    return host_->as<std::byte>();
  }
  void upload(std::size_t bytes) {
    ODDRANK_CUDA_CHECK(
        cudaMemcpyAsync(on_device(), host_->as(), bytes, cudaMemcpyHostToDevice, stream()));
  }
  // Copies memory of the device to this place of the staging memory.
  void fetch(std::size_t at, const void* from, std::size_t bytes) {
    ODDRANK_CUDA_CHECK(cudaMemcpyAsync(host_->as<std::byte>() + at, from, bytes,
                                       cudaMemcpyDeviceToHost, stream()));
  }
  std::byte* on_device() const noexcept { return device_->as<std::byte>(); }
  cudaStream_t stream() const noexcept { return stream_.get(); }
  void wait(const char* what, Deadline deadline) {
    if (size_ == 0) return cuda::wait_or_abandon(stream_, deadline, what);
    cuda::wait_or_abandon(stream_, deadline, what, *device_, *host_);
  }

 private:
  std::size_t size_ = 0;
  std::unique_ptr<cuda::PinnedBuffer> host_;
  std::unique_ptr<cuda::Buffer> device_;
  cuda::Stream stream_;
};

std::mutex mutex;  // guards the workspaces and their use: a process measures one thing at a time

// Never destroyed: at the end of the process CUDA may be gone before it.
std::map<int, std::unique_ptr<Workspace>>& workspaces() {
  static auto* const all = new std::map<int, std::unique_ptr<Workspace>>();
  return *all;
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The segments of one launch on their way through the workspace: pieces, results, tables.
class Batch {
 public:
  Batch(const Placed* begin, const Placed* end, bool contributes)
      : number_(static_cast<std::size_t>(end - begin)),
        found_at_(aligned(number_ * sizeof(Piece))),
        tables_at_(found_at_ + aligned(number_ * sizeof(Found))) {
    tables_.reserve(number_);
    for (const Placed* one = begin; one != end; ++one) {
      tables_.emplace_back(one->segment, !contributes);
      bytes_ += (tables_.back().exact() ? 1 : 2) * aligned(tables_.back().bytes());
    }
    bytes_ += tables_at_;
  }

  Launch upload(Workspace& workspace, const Placed* placed) const {
    std::byte* const stage = workspace.stage(bytes_);
    std::uint64_t blocks = 0;
    std::size_t at = 0;
    const auto put = [&](const std::byte* table, std::size_t bytes) {
      std::memcpy(stage + tables_at_ + at, table, bytes);
      const std::size_t begin = at;
      at += aligned(bytes);
      return static_cast<std::uint64_t>(begin);
    };
    for (std::size_t i = 0; i < number_; ++i) {
      const Segment& segment = placed[i].segment;
      const Table& table = tables_[i];
      Piece piece{placed[i].address, segment.first, segment.count, blocks, 0, 0};
      piece.low = piece.high = put(table.low(), table.bytes());
      if (!table.exact()) piece.high = put(table.high(), table.bytes());
      const Found none{0, ~0ULL};
      std::memcpy(stage + i * sizeof piece, &piece, sizeof piece);
      std::memcpy(stage + found_at_ + i * sizeof none, &none, sizeof none);
      blocks += (segment.first + segment.count - 1) / kSlots - segment.first / kSlots + 1;
    }
    workspace.upload(bytes_);
    std::byte* const there = workspace.on_device();
    return {reinterpret_cast<const Piece*>(there), static_cast<unsigned>(number_), blocks,
            reinterpret_cast<const unsigned char*>(there + tables_at_),
            reinterpret_cast<Found*>(there + found_at_)};
  }

  // The results arrive with the next wait.
  void download(Workspace& workspace) const {
    workspace.fetch(found_at_, workspace.on_device() + found_at_, number_ * sizeof(Found));
  }
  Found found(Workspace& workspace, std::size_t i) const {
    return read<Found>(workspace, found_at_, i);
  }
  // Returns element `i` of the array at a place of the staging memory.
  template <class T>
  T read(Workspace& workspace, std::size_t begin, std::size_t i) const {
    T one;
    std::memcpy(&one, workspace.stage(bytes_) + begin + i * sizeof one, sizeof one);
    return one;
  }
  const Table& table(std::size_t i) const { return tables_[i]; }

 private:
  std::size_t number_;
  std::size_t found_at_, tables_at_;
  std::size_t bytes_ = 0;
  std::vector<Table> tables_;
};

template <class Word>
void fill_words(int device, Workspace& workspace, const Placed* begin, const Placed* end,
                Deadline deadline) {
  const Launch launch = Batch(begin, end, true).upload(workspace, begin);
  write_table<Word><<<grid_of(device, launch.blocks), kThreads, 0, workspace.stream()>>>(launch);
  cuda::launched("launch of write_table");
  workspace.wait("fill", deadline);
}

template <class Word>
void check_words(int device, Workspace& workspace, const Placed* begin, const Placed* end,
                 Deadline deadline, Mismatch* mismatches) {
  const Batch batch(begin, end, false);
  const Launch launch = batch.upload(workspace, begin);
  compare_table<Word><<<grid_of(device, launch.blocks), kThreads, 0, workspace.stream()>>>(
      launch, static_cast<Word>(batch.table(0).negative_zero()));
  cuda::launched("launch of compare_table");
  batch.download(workspace);
  workspace.wait("check", deadline);
  bool any = false;
  for (std::size_t i = 0; begin + i != end; ++i) {
    const Found found = batch.found(workspace, i);
    if (found.wrong == 0) continue;
    any = true;
    // To the place of a piece, which is not needed any more.
    workspace.fetch(i * sizeof(Word), reinterpret_cast<const Word*>(begin[i].address) + found.first,
                    sizeof(Word));
  }
  if (any) workspace.wait("check", deadline);
  for (std::size_t i = 0; begin + i != end; ++i) {
    const Found found = batch.found(workspace, i);
    if (found.wrong == 0) continue;
    const Segment& segment = begin[i].segment;
    const Word got = batch.read<Word>(workspace, 0, i);
    mismatches[i] = {found.wrong, static_cast<std::int64_t>(found.first),
                     batch.table(i).value_at(segment.first + found.first),
                     decode(segment.dtype, got)};
  }
}

// Returns the end of the first launch: as many segments as have room for their tables.
const Placed* end_of_launch(const Placed* begin, const Placed* end) {
  const std::size_t pair = 4 * std::size_t{kSlots} * traits(begin->segment.dtype).size;
  return std::min(end - begin, static_cast<std::ptrdiff_t>(kMostTables / pair)) + begin;
}

// Calls work(workspace), alone. The device is selected.
template <class Work>
void with_workspace(int device, const Work& work) {
  const std::lock_guard lock(mutex);
  auto& workspace = workspaces()[device];
  if (workspace == nullptr) workspace = std::make_unique<Workspace>();
  try {
    work(*workspace);
  } catch (...) {
    workspaces().erase(device);  // its work may not have ended: the next call makes another
    throw;
  }
}

// Calls work(workspace, begin, end) for the segments of each launch.
template <class Work>
void in_launches(int device, const std::vector<Placed>& placed, const Work& work) {
  if (placed.empty()) return;
  const cuda::OnDevice chosen(device);
  for (const Placed& one : placed) {
    const DtypeTraits& dtype = traits(one.segment.dtype);
    need(device, one.address, dtype.size, dtype.name);
  }
  with_workspace(device, [&](Workspace& workspace) {
    const Placed* const end = placed.data() + placed.size();
    for (const Placed* begin = placed.data(); begin != end;) {
      const Placed* const next = end_of_launch(begin, end);
      work(workspace, begin, next);
      begin = next;
    }
  });
}

// Segments without elements have nothing to fill or to check.
std::vector<Placed> filled(const std::vector<Placed>& placed, std::vector<std::size_t>* numbers) {
  std::vector<Placed> kept;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    if (placed[i].segment.count == 0) continue;
    kept.push_back(placed[i]);
    if (numbers != nullptr) numbers->push_back(i);
  }
  return kept;
}

}  // namespace

void fill_on_device(int device, const std::vector<Placed>& all, Deadline deadline) {
  const std::vector<Placed> placed = filled(all, nullptr);
  in_launches(device, placed, [&](Workspace& workspace, const Placed* begin, const Placed* end) {
    with_word(begin->segment.dtype, [&](auto word) {
      fill_words<decltype(word)>(device, workspace, begin, end, deadline);
    });
  });
}

std::vector<Mismatch> check_on_device(int device, const std::vector<Placed>& all,
                                      Deadline deadline) {
  std::vector<std::size_t> numbers;
  const std::vector<Placed> placed = filled(all, &numbers);
  std::vector<Mismatch> seen(placed.size());
  in_launches(device, placed, [&](Workspace& workspace, const Placed* begin, const Placed* end) {
    with_word(begin->segment.dtype, [&](auto word) {
      check_words<decltype(word)>(device, workspace, begin, end, deadline,
                                  seen.data() + (begin - placed.data()));
    });
  });
  std::vector<Mismatch> mismatches(all.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) mismatches[numbers[i]] = seen[i];
  return mismatches;
}

void fill_with_noise_on_device(int device, std::uintptr_t address, std::size_t bytes,
                               const Noise& noise, Deadline deadline) {
  if (bytes == 0) return;
  const cuda::OnDevice chosen(device);
  need(device, address, 8, "random data");
  with_workspace(device, [&](Workspace& workspace) {
    const unsigned grid = grid_of(device, bytes / (8 * kThreads) + 1);
    write_noise<<<grid, kThreads, 0, workspace.stream()>>>(
        reinterpret_cast<unsigned char*>(address), bytes, noise);
    cuda::launched("launch of write_noise");
    workspace.wait("noise", deadline);
  });
}

}  // namespace oddrank::bench

// Walks tensors in row-major order, chunk by chunk, on several threads.
#include "replicas/tensors.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "os/error.hpp"

namespace oddrank::replicas {
namespace {

// What a thread takes at a time: long enough that taking it costs nothing.
constexpr std::uint64_t kTileBytes = 256 * kChunkBytes;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62U;

struct Dimension {
  std::uint64_t size;
  std::uint64_t stride;  // in bytes
};

// A tensor with as few dimensions as describe it; none if its elements follow each other.
struct Layout {
  const unsigned char* data = nullptr;
  std::size_t element = 1;
  std::uint64_t bytes = 0;
  std::vector<Dimension> dimensions;  // the last one is the innermost
};

[[noreturn]] void refuse(const std::string& why) {
  throw Error("this is no tensor that can be digested: " + why);
}

Layout layout_of(const Tensor& tensor) {
  Layout layout;
  layout.data = std::bit_cast<const unsigned char*>(tensor.data);
  layout.element = tensor.element;
  layout.bytes = checked_bytes(tensor);
  if (layout.bytes == 0) return layout;
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    if (tensor.sizes[i] == 1) continue;
    const Dimension next{static_cast<std::uint64_t>(tensor.sizes[i]),
                         static_cast<std::uint64_t>(tensor.strides[i]) * tensor.element};
    auto& known = layout.dimensions;
    if (!known.empty() && known.back().stride == next.size * next.stride) {
      known.back() = {known.back().size * next.size, next.stride};
    } else {
      known.push_back(next);
    }
  }
  if (layout.dimensions.size() == 1 && layout.dimensions[0].stride == layout.element) {
    layout.dimensions.clear();
  }
  return layout;
}

template <std::size_t kElement>
void copy_run(const unsigned char* from, std::uint64_t stride, std::uint64_t count,
              unsigned char* to) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * kElement, from + i * stride, kElement);
  }
}

void copy_elements(std::size_t element, const unsigned char* from, std::uint64_t stride,
                   std::uint64_t count, unsigned char* to) noexcept {
  if (stride == element) {
    std::memcpy(to, from, count * element);
    return;
  }
  switch (element) {
    case 1:
      return copy_run<1>(from, stride, count, to);
    case 2:
      return copy_run<2>(from, stride, count, to);
    case 4:
      return copy_run<4>(from, stride, count, to);
    case 8:
      return copy_run<8>(from, stride, count, to);
    default:
      return copy_run<16>(from, stride, count, to);
  }
}

// Copies bytes [begin, end) of the elements in row-major order. Both are multiples of the element.
void gather(const Layout& layout, std::uint64_t begin, std::uint64_t end,
            unsigned char* to) noexcept {
  const auto& dimensions = layout.dimensions;
  const Dimension& inner = dimensions.back();
  std::uint64_t first = begin / layout.element;
  const std::uint64_t last = end / layout.element;
  while (first < last) {
    // Divides once in a run of the innermost dimension, which is seldom short.
    std::uint64_t index = first / inner.size;
    const std::uint64_t within = first % inner.size;
    std::uint64_t offset = within * inner.stride;
    for (std::size_t i = dimensions.size() - 1; i-- > 0;) {
      offset += index % dimensions[i].size * dimensions[i].stride;
      index /= dimensions[i].size;
    }
    const std::uint64_t count = std::min(inner.size - within, last - first);
    copy_elements(layout.element, layout.data + offset, inner.stride, count, to);
    to += count * layout.element;
    first += count;
  }
}

// Returns the sum of the digests of the chunks in [begin, end); begin is a chunk's begin.
Digest digest_range(const Layout& layout, std::uint64_t begin, std::uint64_t end) noexcept {
  alignas(64) std::array<unsigned char, kChunkBytes> gathered;
  Digest sum;
  for (std::uint64_t at = begin; at < end; at += kChunkBytes) {
    const std::uint64_t length = std::min<std::uint64_t>(kChunkBytes, end - at);
    const unsigned char* data = layout.data + at;
    if (!layout.dimensions.empty()) {
      gather(layout, at, at + length, gathered.data());
      data = gathered.data();
    }
    sum += chunk_digest(chunk_sums(data, length), at / kChunkBytes);
  }
  return sum;
}

// Bytes [begin, end) of a tensor, whose digest is one row of the result.
struct Range {
  const Layout* tensor;
  std::uint64_t begin, end;
  std::uint64_t tiles_before;
};

std::uint64_t tiles_of(std::uint64_t bytes) { return (bytes + kTileBytes - 1) / kTileBytes; }

// Takes tiles until none is left. `next` is shared by the threads; each adds to a row atomically.
void take_tiles(const std::vector<Range>& ranges, std::uint64_t tiles,
                std::atomic<std::uint64_t>& next, std::vector<Digest>& rows) noexcept {
  for (std::uint64_t tile = next++; tile < tiles; tile = next++) {
    const auto after = std::upper_bound(
        ranges.begin(), ranges.end(), tile,
        [](std::uint64_t t, const Range& range) { return t < range.tiles_before; });
    const auto row = static_cast<std::size_t>(after - ranges.begin() - 1);
    const Range& range = ranges[row];
    const std::uint64_t begin = range.begin + (tile - range.tiles_before) * kTileBytes;
    const Digest sum = digest_range(*range.tensor, begin, std::min(begin + kTileBytes, range.end));
    std::atomic_ref(rows[row].low) += sum.low;
    std::atomic_ref(rows[row].high) += sum.high;
  }
}

// Returns the digest of each range. Starts threads only where there are several tiles.
std::vector<Digest> digest_ranges(std::vector<Range> ranges, int threads) {
  std::uint64_t tiles = 0;
  for (Range& range : ranges) {
    range.tiles_before = tiles;
    tiles += tiles_of(range.end - range.begin);
  }
  std::vector<Digest> rows(ranges.size());
  std::atomic<std::uint64_t> next{0};
  std::vector<std::thread> helpers;
  const auto wanted =
      std::min<std::uint64_t>(tiles, static_cast<std::uint64_t>(std::max(1, threads)));
  try {
    while (helpers.size() + 1 < wanted) {
      helpers.emplace_back([&] { take_tiles(ranges, tiles, next, rows); });
    }
  } catch (const std::system_error&) {
    // No more threads for this process: those that exist do the work.
  }
  take_tiles(ranges, tiles, next, rows);
  for (std::thread& helper : helpers) helper.join();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = finish(rows[i], ranges[i].end - ranges[i].begin);
  }
  return rows;
}

}  // namespace

std::uint64_t checked_bytes(const Tensor& tensor) {
  if (!std::has_single_bit(tensor.element) || tensor.element > 16) {
    refuse("elements of " + std::to_string(tensor.element) + " bytes");
  }
  if (tensor.sizes.size() != tensor.strides.size()) refuse("not as many strides as sizes");
  std::uint64_t bytes = tensor.element;
  std::uint64_t reach = tensor.element;
  bool empty = false;
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    const std::int64_t size = tensor.sizes[i];
    if (size < 0 || tensor.strides[i] < 0) refuse("a negative size or stride");
    if (size == 0) {
      empty = true;
      continue;
    }
    const auto stride = static_cast<std::uint64_t>(tensor.strides[i]);
    std::uint64_t step = 0;
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes) ||
        __builtin_mul_overflow(stride, tensor.element * static_cast<std::uint64_t>(size - 1),
                               &step) ||
        __builtin_add_overflow(reach, step, &reach) || bytes > kMostBytes || reach > kMostBytes) {
      refuse("more than 2^62 bytes");
    }
  }
  if (empty) return 0;
  if (tensor.data == 0) refuse("no memory");
  return bytes;
}

std::vector<Digest> digest_tensors(const std::vector<Tensor>& tensors, int threads) {
  std::vector<Layout> layouts;
  layouts.reserve(tensors.size());
  for (const Tensor& tensor : tensors) layouts.push_back(layout_of(tensor));
  std::vector<Range> ranges;
  ranges.reserve(layouts.size());
  for (const Layout& layout : layouts) ranges.push_back({&layout, 0, layout.bytes, 0});
  return digest_ranges(std::move(ranges), threads);
}

std::vector<Digest> digest_blocks(const Tensor& tensor, std::uint64_t block, std::uint64_t begin,
                                  std::uint64_t end, int threads) {
  if (block == 0 || block % kChunkBytes != 0 || begin % block != 0) {
    throw Error("blocks of " + std::to_string(block) + " bytes from byte " + std::to_string(begin) +
                " on: a block is a multiple of " + std::to_string(kChunkBytes) +
                " bytes, and they begin at one");
  }
  const Layout layout = layout_of(tensor);
  std::vector<Range> ranges;
  for (std::uint64_t at = begin; at < std::min(end, layout.bytes); at += block) {
    ranges.push_back({&layout, at, std::min(at + block, layout.bytes), 0});
  }
  return digest_ranges(std::move(ranges), threads);
}

void copy_bytes(const Tensor& tensor, std::uint64_t begin, std::uint64_t end, unsigned char* to) {
  const Layout layout = layout_of(tensor);
  if (begin > end || end > layout.bytes || begin % layout.element != 0 ||
      end % layout.element != 0) {
    throw Error("bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                " are no elements of a tensor of " + std::to_string(layout.bytes) + " bytes");
  }
  if (begin == end) return;
  if (layout.dimensions.empty()) {
    std::memcpy(to, layout.data + begin, end - begin);
  } else {
    gather(layout, begin, end, to);
  }
}

}  // namespace oddrank::replicas

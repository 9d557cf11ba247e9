// Packs and unpacks snapshots.
#include "run/worker_snapshot.hpp"

#include <algorithm>
#include <cstddef>

#include "control/messages.hpp"
#include "trace/read/slim.hpp"

namespace oddrank::run {
namespace {

constexpr std::size_t kWord = 8;
constexpr std::size_t kMostZeros = 255;

bool is_zero(std::string_view word) noexcept {
  return std::all_of(word.begin(), word.end(), [](char byte) { return byte == 0; });
}

}  // namespace

std::string pack_snapshot(const WorkerSnapshot& snapshot) {
  control::Packer out;
  out(control::pack(snapshot), static_cast<std::uint32_t>(snapshot.workers.size()));
  out(pack_words(snapshot.record));
  for (const std::string& worker : snapshot.workers) out(pack_words(worker));
  return out.take();
}

std::optional<WorkerSnapshot> unpack_snapshot(std::string_view bytes) {
  control::Unpacker in(bytes);
  auto snapshot = control::unpack<WorkerSnapshot>(in.text(control::kSmallFrame));
  const std::size_t workers = in.next<std::uint32_t>();
  if (!snapshot || workers > kMostWorkers) return std::nullopt;
  snapshot->workers.resize(workers);
  for (std::size_t i = 0; i <= workers; ++i) {
    auto record = unpack_words(in.text(2 * trace::kLargestSlim), trace::kLargestSlim);
    if (!in.ok() || !record) return std::nullopt;
    (i == 0 ? snapshot->record : snapshot->workers[i - 1]) = *std::move(record);
  }
  return snapshot;
}

std::string pack_words(std::string_view bytes) {
  std::string packed;
  for (std::size_t at = 0; at + kWord <= bytes.size();) {
    const std::string_view word = bytes.substr(at, kWord);
    at += kWord;
    if (!is_zero(word)) {
      const std::size_t mask_at = packed.size();
      unsigned mask = 0;
      packed.push_back(0);
      for (std::size_t i = 0; i < kWord; ++i) {
        if (word[i] == 0) continue;
        mask |= 1U << i;
        packed.push_back(word[i]);
      }
      packed[mask_at] = static_cast<char>(mask);
      continue;
    }
    std::size_t more = 0;
    for (; more < kMostZeros && at + kWord <= bytes.size() && is_zero(bytes.substr(at, kWord));
         ++more) {
      at += kWord;
    }
    packed.push_back(0);
    packed.push_back(static_cast<char>(more));
  }
  return packed;
}

std::optional<std::string> unpack_words(std::string_view packed, std::size_t most) {
  std::string bytes;
  for (std::size_t at = 0; at < packed.size();) {
    const auto mask = static_cast<unsigned char>(packed[at++]);
    std::size_t words = 1;
    if (mask == 0) {
      if (at == packed.size()) return std::nullopt;
      words += static_cast<unsigned char>(packed[at++]);
    }
    if (words * kWord > most - bytes.size()) return std::nullopt;
    const std::size_t begin = bytes.size();
    bytes.resize(begin + words * kWord, '\0');
    for (std::size_t i = 0; i < kWord; ++i) {
      if ((mask >> i & 1U) == 0) continue;
      if (at == packed.size()) return std::nullopt;
      bytes[begin + i] = packed[at++];
    }
  }
  return bytes;
}

}  // namespace oddrank::run

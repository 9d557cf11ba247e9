// A good record, changed at random and by extremes: everything that is left is read or refused.
#include <gtest/gtest.h>

#include <random>

#include "read_everything.hpp"
#include "record_builder.hpp"

namespace oddrank::trace {
namespace {

constexpr std::uint64_t kExtremes[] = {0,
                                       1,
                                       7,
                                       8,
                                       4095,
                                       4096,
                                       0x7FFF'FFFF,
                                       0x8000'0000,
                                       0xFFFF'FFFF,
                                       0x1'0000'0000,
                                       0x7FFF'FFFF'FFFF'FFFF,
                                       0x8000'0000'0000'0000,
                                       0xFFFF'FFFF'FFFF'FFF8,
                                       0xFFFF'FFFF'FFFF'FFFF};

std::string good_record() {
  RecordBuilder record;
  fill_record(record);
  return std::string(record.bytes());
}

// 0 where it was read, 1 where it was refused.
int read_bytes(const std::string& bytes) {
  Fd fd(::memfd_create("oddrank-mutated", MFD_CLOEXEC));
  const auto size = static_cast<ssize_t>(bytes.size());
  if (!fd || ::write(fd.get(), bytes.data(), bytes.size()) != size) throw_errno("memfd");
  try {
    RecordFile file(std::move(fd), "of the test");
    volatile std::size_t used = read_parts(file);
    used = export_text(std::move(file), true).size();
    static_cast<void>(used);
  } catch (const Error&) {
    return 1;
  }
  return 0;
}

TEST(ReadMutations, every_word_of_the_header_and_of_the_slots_at_its_extremes) {
  const std::string good = good_record();
  ASSERT_EQ(read_bytes(good), 0);
  int refused = 0;
  int cases = 0;
  for (std::size_t at = 0; at < good.size(); at += 4) {
    const bool is_header = at < sizeof(Header);
    // The whole header; of the rest a sample, since most of it is zeros or texts.
    if (!is_header && at % 20 != 0) continue;
    for (const std::uint64_t extreme : kExtremes) {
      for (const std::size_t size : {std::size_t{4}, std::size_t{8}}) {
        if (at + size > good.size() || (!is_header && size == 4)) continue;
        std::string changed = good;
        std::memcpy(&changed[at], &extreme, size);
        refused += read_bytes(changed);
        ++cases;
      }
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, cases / 2);
}

TEST(ReadMutations, twenty_thousand_at_random) {
  const std::string good = good_record();
  std::mt19937_64 random(20'240'229);
  const auto below = [&random](std::size_t limit) { return random() % limit; };
  const std::size_t extremes = std::size(kExtremes);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = good;
    for (std::size_t changes = 1 + below(8); changes > 0; --changes) {
      // Magic and version stay mostly, so that there is something to read.
      const std::size_t from = below(50) == 0 ? 0 : 16;
      const std::size_t limit = below(3) == 0 ? sizeof(Header) : changed.size();
      if (limit <= from + 8) continue;
      const std::size_t at = from + below(limit - from - 8);
      switch (below(5)) {
        case 0:
          changed[at] = static_cast<char>(random());
          break;
        case 1:
          changed[at] = static_cast<char>(changed[at] ^ 1 << below(8));
          break;
        case 2:
          std::memcpy(&changed[at / 8 * 8], &kExtremes[below(extremes)], 8);
          break;
        case 3:
          std::memcpy(&changed[at / 4 * 4], &kExtremes[below(extremes)], 4);
          break;
        default:
          std::memcpy(&changed[at / 8 * 8], &changed[below(changed.size() - 8) / 8 * 8], 8);
      }
    }
    if (below(100) == 0) changed.resize(below(changed.size()));
    if (read_bytes(changed) == 0) ++read;
  }
  EXPECT_GT(read, 2'000) << "too few got past the header to say anything";
}

}  // namespace
}  // namespace oddrank::trace

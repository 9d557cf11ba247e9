// Opening a record: other or broken files give one clear error and never a signal.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "../in_folder.hpp"
#include "../words.hpp"
#include "os/clock.hpp"
#include "os/proc.hpp"
#include "record_builder.hpp"
#include "trace/read/file.hpp"

namespace oddrank::trace {
namespace {

namespace fs = std::filesystem;

class ReadFile : public InFolder {
 protected:
  static std::string why(const std::string& path) {
    return refusal([&] { const RecordFile file(path); });
  }
  static std::string why(const RecordBuilder& record) {
    return refusal([&] { record.open(); });
  }
};

void expect_in(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(ReadFile, says_whose_it_is_where_it_stands_and_how_its_process_ended) {
  FullRecord record;
  EXPECT_EQ(record.open().header().end(), End::kNone);
  record.header().lost_codes = 5;
  record.header().end = static_cast<std::uint64_t>(End::kExited) | std::uint64_t{137} << 32;
  set_text(record.header().displaced_by, "coverage");
  set_text(record.header().raised, "ValueError");
  set_text(record.header().job, "slurm-7.0");
  record.save(path("rank3"));
  const RecordFile file(path("rank3"));
  const Process& who = file.process();
  EXPECT_EQ(words(who.pid, who.rank, who.world, who.host, who.arguments, who.is_child, who.job),
            "4711 3 8 node1 train.py --lr 1 0 slurm-7.0");
  EXPECT_EQ(file.size(), record.size());
  const HeaderCopy now = file.header();
  EXPECT_EQ(words(now.step(), value_of(now->lost_codes), text_of(now->displaced_by), now.end(),
                  now.exit_code(), text_of(now->raised)),
            words(6, 5, "coverage", End::kExited, 137, "ValueError"));
  record.header().step = 0;
  EXPECT_EQ(record.open().header().step(), std::nullopt);
  std::memset(record.header().host, 0xFF, sizeof record.header().host);
  EXPECT_EQ(record.open().process().host, std::string(64, '\xFF')) << "cut at its field";
}

TEST_F(ReadFile, refuses_what_is_no_regular_file) {
  expect_in(why(path("missing")), "cannot open the record " + path("missing"));
  RecordBuilder().save(path("good"));
  fs::create_symlink(path("good"), path("link"));
  expect_in(why(path("link")), "symbolic link");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_in(why(path("pipe")), "not a regular file");
  expect_in(why(folder_), "not a regular file");
  EXPECT_EQ(why(path("good")), "");
}

TEST_F(ReadFile, refuses_what_is_not_a_whole_record_of_this_version) {
  RecordBuilder record;
  record.save(path("file"));
  fs::resize_file(path("file"), record.size() - 1);
  expect_in(why(path("file")), "it was cut");
  fs::resize_file(path("file"), kPage - 1);
  expect_in(why(path("file")), "less than a header");
  std::ofstream(path("text")) << "some text\n";
  expect_in(why(path("text")), "is not a record of oddrank: it begins with other bytes");
  fs::resize_file(path("file"), 0);
  expect_in(why(path("file")), "has 0 bytes");
  fs::resize_file(path("file"), kPage);
  expect_in(why(path("file")), "died before it could begin");

  record.save(path("file"));
  fs::resize_file(path("file"), record.size() + 5000);
  EXPECT_EQ(RecordFile(path("file")).size(), record.size()) << "what follows is not looked at";

  for (const std::uint32_t version : {kVersion - 1, kVersion + 1, 0U}) {
    record.header().version = version;
    expect_in(why(record), "has version " + std::to_string(version));
  }
  expect_in(why(record), "this oddrank reads version " + std::to_string(kVersion));
  record.header().endian = 0x04030201;
  expect_in(why(record), "byte order");
  record.header().magic[0] = 'x';
  expect_in(why(record), "not a record of oddrank");
}

TEST_F(ReadFile, refuses_each_region_that_is_not_inside_the_file) {
  for (Region Header::*which :
       {&Header::dictionary, &Header::threads, &Header::rings, &Header::marks, &Header::collectives,
        &Header::open, &Header::groups}) {
    RecordBuilder record;
    Region& region = record.header().*which;
    const Region good = region;
    const std::uint64_t size = record.size();
    const auto refuses = [&](auto Region::*field, auto values) {
      for (const auto value : values) {
        region = good;
        region.*field = value;
        expect_in(why(record), "broken header");
      }
    };
    refuses(&Region::offset, std::vector{std::uint64_t{0}, std::uint64_t{8}, good.offset + 1,
                                         good.offset + 4, size, size - good.bytes() + 8,
                                         ~std::uint64_t{7}, ~std::uint64_t{7} - good.bytes()});
    refuses(&Region::count, std::vector{~0U, 1U << 31, 1U << 16});
    refuses(&Region::stride, std::vector{0U, 3U, 12U, ~0U, ~7U});
    region = {~std::uint64_t{0}, 0, ~0U};
    EXPECT_EQ(why(record), "") << "an empty region lies nowhere";
    region = good;
    EXPECT_EQ(why(record), "");
  }
}

TEST_F(ReadFile, a_file_that_is_cut_while_it_is_read_is_an_error_and_no_signal) {
  RecordBuilder record;
  record.save(path("file"));
  const RecordFile file(path("file"));
  fs::resize_file(path("file"), kPage + 16);
  EXPECT_EQ(file.words(kPage, 16).size(), 2U);
  expect_in(refusal([&] { file.words(kPage, 24); }), "while it was read");
  fs::resize_file(path("file"), 0);
  expect_in(refusal([&] { file.header(); }), "while it was read");
}

TEST_F(ReadFile, nothing_behind_the_end_of_a_record_in_memory_is_read) {
  RecordBuilder record;
  const std::vector<std::uint64_t> copy = record.open().words(0, record.size());
  const std::span bytes(reinterpret_cast<const unsigned char*>(copy.data()), record.size());
  const RecordFile file(bytes, "a copy");
  EXPECT_EQ(file.words(record.size() - 8, 8).size(), 1U);
  for (const std::uint64_t offset : {record.size() - 8, record.size() + 8, ~std::uint64_t{7}}) {
    expect_in(refusal([&] { file.words(offset, 16); }), "its header says more");
  }
}

TEST_F(ReadFile, clocks_make_a_line_through_the_last_picture_and_a_clock_that_is_set_bends_it_not) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  for (const std::int64_t step :
       {std::int64_t{0}, -3600 * kSecond, -kSecond / 2, kSecond / 2, 3600 * kSecond}) {
    FullRecord record;
    Word& shown = record.header().clocks[1].realtime_ns;
    shown = static_cast<std::uint64_t>(static_cast<std::int64_t>(shown.load()) + step);
    ClockPair& written = record.header().clocks[2];
    written.number = 3;  // odd: being written
    written.tsc = ~std::uint64_t{0};
    const Clock clock(record.open().clocks());
    ASSERT_EQ(clock.knows(), Clock::Knows::kLine);
    for (const std::int64_t after : {std::int64_t{0}, std::int64_t{1'000}, std::int64_t{-500},
                                     kSecond / 2, kSecond, 10'000 * kSecond}) {
      const auto tsc = static_cast<std::uint64_t>(1'000 + 2 * after);
      EXPECT_EQ(clock.realtime_ns(tsc), 1'700'000'000'000'000'000 + after + step) << after;
    }
  }
}

TEST_F(ReadFile, one_picture_of_the_clocks_knows_one_moment) {
  FullRecord record;
  record.header().clocks[1].number = 1;
  const Clock clock(record.open().clocks());
  ASSERT_EQ(clock.knows(), Clock::Knows::kOneMoment);
  EXPECT_EQ(clock.realtime_ns(1'000), 1'700'000'000'000'000'000);
  EXPECT_EQ(clock.realtime_ns(3'000), std::nullopt);
  record.header().clocks[0].number = 1;
  EXPECT_EQ(Clock(record.open().clocks()).knows(), Clock::Knows::kNothing);
}

TEST_F(ReadFile, a_clock_that_was_set_after_the_end_of_a_process_moves_no_event_of_it) {
  constexpr std::int64_t kHour = 3600'000'000'000;
  for (const bool lives : {true, false}) {
    FullRecord record;
    Header& header = record.header();
    set_text(header.boot_id, boot_id());
    header.process.pid_namespace = pid_namespace();
    header.process.pid = static_cast<std::uint32_t>(::getpid());
    header.process.start_time = lives ? read_stat(::getpid()).start_time : 1;
    header.clocks[1].number = 0;  // never written
    ClockPair& pair = header.clocks[0];
    const std::int64_t now = clock_ns(CLOCK_REALTIME);
    pair.tsc = read_tsc();
    pair.monotonic_ns = static_cast<std::uint64_t>(monotonic_ns());
    pair.realtime_ns = static_cast<std::uint64_t>(now - kHour);
    const Time event = clock_of(record.open()).realtime_ns(pair.tsc.load());
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(std::abs(*event - now) < kHour / 2, lives);
    EXPECT_EQ(std::abs(*event - (now - kHour)) < kHour / 2, !lives);
  }
}

// Runs `look` in a child that cannot read its boot's id, as in some sandboxes. False: no rights.
bool run_without_boot_id(const std::function<bool()>& look, bool& right) {
  const pid_t child = ::fork();
  if (child == 0) {
    const char* const id = "/proc/sys/kernel/random/boot_id";
    const bool apart = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    const bool hidden = apart &&
                        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        ::mount("/dev/null", id, nullptr, MS_BIND, nullptr) == 0;
    ::_exit(!hidden ? 2 : look() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  right = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

TEST_F(ReadFile, of_an_unknown_boot_the_clocks_of_now_say_nothing) {
  FullRecord record;
  set_text(record.header().boot_id, "");
  bool right = false;
  const auto look = [&] {
    const RecordFile file = record.open();
    return boot_id().empty() && clock_pictures(file).size() == file.clocks().size() &&
           liveness_of(file.process()) == Liveness::kUnknown;
  };
  if (!run_without_boot_id(look, right)) GTEST_SKIP() << "needs root or user namespaces";
  EXPECT_TRUE(right);
}

}  // namespace
}  // namespace oddrank::trace

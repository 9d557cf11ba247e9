// Arithmetic of a clock exchange, with made-up timestamps: which reading counts, and when to ask.
#include <gtest/gtest.h>

#include <random>

#include "../words.hpp"
#include "control/clock_exchange.hpp"

namespace oddrank::control {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSecond = 1'000 * kMs;
constexpr std::int64_t kStart = 500 * kSecond;

constexpr ClockQuestion kQuestion{1, kStart + kSecond, true};

// A rank whose root's clock is `ahead`; the test moves the time.
struct Made {
  ClockExchange exchange;
  std::int64_t ahead;
  std::int64_t now = kStart;
  int made = 0;

  explicit Made(std::int64_t roots_lead, int rank = 1, int world = 2, const char* clock = "here")
      : exchange(rank, world, clock), ahead(roots_lead) {
    exchange.ask(kQuestion, now);
  }

  // One exchange that takes `there` to the root and `back` from it.
  void run(std::int64_t there, std::int64_t back, const std::string& clock = "elsewhere") {
    now += exchange.wait_ns(now);
    ASSERT_TRUE(exchange.due(now));
    const std::uint32_t number = exchange.begin(now);
    const std::int64_t reading = now + there + ahead;
    now += there + back;
    exchange.hear({number, reading, clock}, now);
    ++made;
  }
  bool has_answer() { return exchange.answer(now, false).has_value(); }
  // The answer is there, once, with these numbers.
  void answers(std::int64_t offset, std::int64_t error, bool is_last = false) {
    const auto answer = exchange.answer(now, is_last);
    ASSERT_TRUE(answer);
    EXPECT_EQ(words(answer->number, answer->offset_ns, answer->error_ns, answer->trouble),
              words(1, offset, error, ""));
    EXPECT_FALSE(exchange.answer(now, is_last)) << "an answer is given once";
  }
};

TEST(ClockExchange, the_shortest_of_sixteen_round_trips_counts) {
  for (const std::int64_t ahead : {std::int64_t{0}, 7 * kSecond, -400 * kSecond}) {
    Made one(ahead);
    while (one.made < 16) {
      EXPECT_FALSE(one.has_answer());
      one.made == 9 ? one.run(20'000, 20'000) : one.run(30'000, 90'000);
    }
    one.answers(ahead, 20'000);
  }
}

TEST(ClockExchange, the_true_offset_is_within_the_error_whatever_the_ways_take) {
  std::mt19937_64 random(7);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
  };
  for (int round = 0; round < 2'000; ++round) {
    Made one(up_to(800 * kSecond) - 400 * kSecond);
    const int exchanges = 1 + static_cast<int>(random() % 15);
    for (int i = 0; i < exchanges; ++i) one.run(up_to(kMs), up_to(kMs));
    const auto answer = one.exchange.answer(one.now, true);
    ASSERT_TRUE(answer);
    EXPECT_LE(std::abs(answer->offset_ns - one.ahead), answer->error_ns);
  }
}

TEST(ClockExchange, on_the_roots_own_clock_one_exchange_is_enough_but_not_without_the_shortcut) {
  Made one(0);
  one.run(30'000, 50'000, "here");
  one.answers(0, 0);
  Made measured(0);
  measured.exchange.ask({1, kStart + kSecond, false}, measured.now);
  measured.run(30'000, 50'000, "here");
  EXPECT_FALSE(measured.has_answer());
  measured.answers(-10'000, 40'000, true);
  // A boot id that was copied with its machine is not believed.
  Made copied(90 * kSecond);
  for (int i = 0; i < 16; ++i) copied.run(30'000, 30'000, "here");
  copied.answers(90 * kSecond, 30'000);
  // A kernel that names no clock has none in common with another.
  Made nameless(0, 1, 2, "");
  nameless.run(10, 10, "");
  EXPECT_FALSE(nameless.has_answer());
}

TEST(ClockExchange, readings_that_were_not_asked_for_change_nothing) {
  Made one(0);
  one.run(30'000, 30'000);
  one.exchange.hear({1, 5, "here"}, one.now);  // again
  const std::uint32_t number = one.exchange.begin(one.now);
  one.exchange.hear({number + 1, 5, "here"}, one.now);
  one.exchange.hear({0, 5, "here"}, one.now);
  EXPECT_TRUE(one.exchange.awaits_reply());
  one.exchange.ask(kQuestion, one.now);  // a new question: the old reply is too late
  one.exchange.hear({number, 5, "here"}, one.now);
  const auto answer = one.exchange.answer(one.now + 2 * kSecond, false);
  ASSERT_TRUE(answer);
  EXPECT_FALSE(answer->trouble.empty());
}

TEST(ClockExchange, at_the_deadline_it_answers_with_what_it_has) {
  Made one(3 * kSecond);
  one.run(1'000, 1'000);
  one.exchange.begin(one.now);  // never answered
  EXPECT_FALSE(one.exchange.answer(kStart + kSecond - 1, false));
  EXPECT_EQ(one.exchange.wait_ns(kStart + kSecond - 1), 1);
  one.now = kStart + kSecond;
  one.answers(3 * kSecond, 1'000);
  EXPECT_FALSE(one.exchange.awaits_reply());
}

TEST(ClockExchange, ten_thousand_ranks_do_not_ask_at_the_same_moment) {
  constexpr int kWorld = 10'000;
  constexpr std::int64_t kSlice = 10 * kMs;
  std::vector<int> asked(100);
  for (int rank = 0; rank < kWorld; ++rank) {
    Made one(0, rank, kWorld);
    ASSERT_EQ(one.exchange.wait_ns(kStart) == 0, one.exchange.due(kStart));
    const std::int64_t first = one.exchange.wait_ns(kStart);
    ASSERT_LT(first, kSecond / 2);
    ++asked[static_cast<std::size_t>(first / kSlice)];
  }
  for (const int count : asked) EXPECT_LT(count, kWorld / 15);
}

}  // namespace
}  // namespace oddrank::control

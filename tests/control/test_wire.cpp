// Frames and messages from strangers: whatever comes, nothing is read past its end or believed.
#include <gtest/gtest.h>

#include <random>

#include "control/messages.hpp"
#include "control/net.hpp"
#include "control/wire.hpp"

namespace oddrank::control {
namespace {

State some_state() {
  State state;
  state.life = Life::kDead;
  state.signal = 11;
  state.stage = "all_reduce";
  state.step = "64 MiB";
  state.progress = 1ULL << 40;
  state.waiting = true;
  state.fault_age_ns = 12'345;
  return state;
}

TEST(Wire, a_frame_comes_out_as_it_went_in_whatever_pieces_it_arrives_in) {
  const std::string bytes = encode(Kind::kState, some_state().pack()) + encode(Kind::kPing, "");
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.feed(bytes.data() + at, std::min(piece, bytes.size() - at));
      while (auto frame = reader.next()) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 2U);
    const auto state = State::unpack(frames[0].payload);
    ASSERT_TRUE(state);
    EXPECT_EQ(state->life, Life::kDead);
    EXPECT_EQ(state->step, "64 MiB");
    EXPECT_EQ(state->progress, 1ULL << 40);
    EXPECT_TRUE(state->waiting);
    EXPECT_EQ(frames[1].kind, Kind::kPing);
  }
}

TEST(Wire, a_frame_longer_than_its_kind_may_be_breaks_the_reader_before_it_is_stored) {
  for (const std::string& header : {std::string("\xff\xff\xff\xff\x07", 5),
                                    std::string("\x02\x00\x01\x00\x09", 5),  // ping of 64 KiB + 2
                                    std::string("\x00\x00\x00\x00\x09", 5),  // no kind
                                    std::string("\x01\x00\x00\x00\x63", 5)}) {
    FrameReader reader;
    reader.feed(header.data(), header.size());
    EXPECT_FALSE(reader.next());
    EXPECT_TRUE(reader.broken());
    const std::string good = encode(Kind::kPing, "");
    reader.feed(good.data(), good.size());
    EXPECT_FALSE(reader.next()) << "a broken stream has no frame borders left";
  }
}

TEST(Wire, a_stranger_may_send_less_than_a_guard) {
  const std::string bytes = encode(Kind::kResult, std::string(kStrangerFrame, 'x'));
  FrameReader stranger(kStrangerFrame);
  stranger.feed(bytes.data(), bytes.size());
  EXPECT_FALSE(stranger.next());
  EXPECT_TRUE(stranger.broken());
  FrameReader guard;
  guard.feed(bytes.data(), bytes.size());
  EXPECT_TRUE(guard.next());
}

TEST(Wire, every_message_cut_short_is_refused) {
  Hello hello;
  hello.token = "t";
  hello.host = "node1";
  Roster roster;
  roster.root_host = "node0";
  roster.processes = {{1, 2, 3}, {4, 5, 6}};
  const std::string payloads[] = {hello.pack(),
                                  some_state().pack(),
                                  Go{1, "s", "{}"}.pack(),
                                  Welcome{}.pack(),
                                  roster.pack(),
                                  ClockQuestion{1, 2, true}.pack(),
                                  ClockReading{1, 2, "boot"}.pack(),
                                  ClockAnswer{1, -2, 3, ""}.pack()};
  EXPECT_TRUE(Hello::unpack(payloads[0]));
  EXPECT_TRUE(Roster::unpack(payloads[4]));
  for (std::size_t cut = 0; cut < 300; ++cut) {
    const auto part = [&](const std::string& whole) {
      return std::string_view(whole).substr(0, std::min(cut, whole.size() - 1));
    };
    EXPECT_FALSE(Hello::unpack(part(payloads[0])));
    EXPECT_FALSE(State::unpack(part(payloads[1])));
    EXPECT_FALSE(Go::unpack(part(payloads[2])));
    EXPECT_FALSE(Welcome::unpack(part(payloads[3])));
    EXPECT_FALSE(Roster::unpack(part(payloads[4])));
    EXPECT_FALSE(ClockQuestion::unpack(part(payloads[5])));
    EXPECT_FALSE(ClockReading::unpack(part(payloads[6])));
    EXPECT_FALSE(ClockAnswer::unpack(part(payloads[7])));
  }
}

TEST(Wire, what_is_said_of_clocks_comes_out_as_it_went_in) {
  const auto question = ClockQuestion::unpack(ClockQuestion{7, 1LL << 60, false}.pack());
  ASSERT_TRUE(question);
  EXPECT_EQ(question->number, 7U);
  EXPECT_EQ(question->deadline_ns, 1LL << 60);
  EXPECT_FALSE(question->shortcut);
  const auto reading = ClockReading::unpack(ClockReading{8, 123, "boot time:[1]"}.pack());
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->number, 8U);
  EXPECT_EQ(reading->ns, 123);
  EXPECT_EQ(reading->clock, "boot time:[1]");
  const auto answer = ClockAnswer::unpack(ClockAnswer{9, -5, 6, "silent"}.pack());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->number, 9U);
  EXPECT_EQ(answer->offset_ns, -5);
  EXPECT_EQ(answer->error_ns, 6);
  EXPECT_EQ(answer->trouble, "silent");
}

TEST(Wire, a_time_that_no_clock_shows_is_refused) {
  for (const std::int64_t ns : {INT64_MIN, std::int64_t{-1}, INT64_MAX / 4 + 1, INT64_MAX}) {
    EXPECT_FALSE(ClockReading::unpack(ClockReading{1, ns, ""}.pack())) << ns;
  }
  EXPECT_FALSE(ClockReading::unpack(ClockReading{1, 1, std::string(300, 'x')}.pack()));
}

TEST(Wire, random_bytes_never_hurt) {
  std::mt19937 random(42);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    static_cast<void>(Hello::unpack(bytes));
    static_cast<void>(State::unpack(bytes));
    static_cast<void>(Go::unpack(bytes));
    static_cast<void>(Roster::unpack(bytes));
    static_cast<void>(ClockQuestion::unpack(bytes));
    static_cast<void>(ClockReading::unpack(bytes));
    static_cast<void>(ClockAnswer::unpack(bytes));
    FrameReader reader;
    reader.feed(bytes.data(), bytes.size());
    while (reader.next()) {
    }
    std::string changed = encode(Kind::kState, some_state().pack());
    changed[random() % changed.size()] = static_cast<char>(random());
    FrameReader second;
    second.feed(changed.data(), changed.size());
    while (auto frame = second.next()) static_cast<void>(State::unpack(frame->payload));
  }
}

TEST(Address, text_and_parse_are_inverse) {
  const std::string text = "10.0.0.1,fd00::1,192.168.1.2:29600#abc:def";
  const RootAddress address = RootAddress::parse(text);
  EXPECT_EQ(address.hosts, (std::vector<std::string>{"10.0.0.1", "fd00::1", "192.168.1.2"}));
  EXPECT_EQ(address.port, 29600);
  EXPECT_EQ(address.token, "abc:def");
  EXPECT_EQ(address.text(), text);
  EXPECT_EQ(RootAddress::parse("[fd00::1]:80#x").hosts.front(), "fd00::1");
  EXPECT_EQ(address.resolve().size(), 3U);
}

TEST(Address, what_is_no_address_is_refused_without_showing_the_secret) {
  for (const char* text : {"", "10.0.0.1:1", "10.0.0.1#secret", "host:29600#secret",
                           "10.0.0.1:0#secret", "10.0.0.1:99999#secret", ":5#secret",
                           "10.0.0.1:5 #secret", "10.0.0.1:5#", "1.2.3.4,:5#secret"}) {
    try {
      RootAddress::parse(text);
      ADD_FAILURE() << text;
    } catch (const std::exception& error) {
      EXPECT_EQ(std::string(error.what()).find("secret\""), std::string::npos) << error.what();
    }
  }
}

TEST(Address, tokens_are_128_bits_and_differ) {
  EXPECT_EQ(random_token().size(), 32U);
  EXPECT_NE(random_token(), random_token());
}

}  // namespace
}  // namespace oddrank::control

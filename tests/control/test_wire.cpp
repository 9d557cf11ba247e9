// Frames and messages from strangers: nothing is read past the end, nothing false is accepted. The
// code of the proofs is that of RFC 4231.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "../words.hpp"
#include "control/messages.hpp"
#include "control/net.hpp"
#include "control/wire.hpp"

namespace oddrank::control {
namespace {

State some_state() {
  State state;
  state.life = Liveness::kDead;
  state.signal = 11;
  state.stage = "all_reduce";
  state.step = "64 MiB";
  state.progress = 1ULL << 40;
  state.waiting = true;
  state.fault_age_ns = 12'345;
  return state;
}

TEST(Wire, a_frame_comes_out_as_it_went_in_whatever_pieces_it_arrives_in) {
  const std::string bytes =
      encode(FrameKind::kState, pack(some_state())) + encode(FrameKind::kPing, "");
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.feed(bytes.data() + at, std::min(piece, bytes.size() - at));
      while (auto frame = reader.next()) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 2U);
    const auto state = unpack<State>(frames[0].payload);
    ASSERT_TRUE(state);
    EXPECT_EQ(words(state->life, state->signal, state->stage, state->step, state->progress,
                    state->waiting, state->fault_age_ns),
              words(Liveness::kDead, 11, "all_reduce", "64 MiB", 1ULL << 40, true, 12'345));
    EXPECT_EQ(frames[1].kind, FrameKind::kPing);
  }
}

TEST(Wire, a_frame_longer_than_its_kind_or_sender_may_be_breaks_the_reader_before_it_is_stored) {
  const auto is_read = [](const std::string& bytes, auto... most) {
    FrameReader reader(most...);
    reader.feed(bytes.data(), bytes.size());
    const bool read = reader.next().has_value();
    EXPECT_NE(read, reader.broken());
    const std::string good = encode(FrameKind::kPing, "");
    reader.feed(good.data(), good.size());
    EXPECT_EQ(reader.next().has_value(), read) << "a broken stream has no frame borders left";
    return read;
  };
  for (const std::string& header : {std::string("\xff\xff\xff\xff\x07", 5),
                                    std::string("\x02\x00\x01\x00\x09", 5),  // ping of 64 KiB + 2
                                    std::string("\x00\x00\x00\x00\x09", 5),  // no kind
                                    std::string("\x01\x00\x00\x00\x63", 5)}) {
    EXPECT_FALSE(is_read(header));
  }
  const std::string guards = encode(FrameKind::kResult, std::string(kStrangerFrame, 'x'));
  EXPECT_FALSE(is_read(guards, kStrangerFrame));
  EXPECT_TRUE(is_read(guards));
}

TEST(Wire, a_text_is_read_up_to_its_limit_and_never_past_the_end) {
  const auto is_read = [](const std::string& bytes, std::size_t limit) {
    Unpacker in(bytes);
    const std::string value = in.text(limit);
    EXPECT_EQ(in.next<std::uint8_t>(), in.ok() ? 7 : 0) << "a field after one that does not fit";
    EXPECT_EQ(value, in.ok() ? "four" : "");
    return in.ok();
  };
  const std::string bytes = packed("four", std::uint8_t{7});
  for (std::size_t limit = 0; limit < 6; ++limit) EXPECT_EQ(is_read(bytes, limit), limit >= 4);
  for (const std::uint32_t size : {6U, 1U << 31, UINT32_MAX}) {
    EXPECT_FALSE(is_read(packed(size) + bytes.substr(4), SIZE_MAX)) << size;
  }
}

TEST(Wire, a_list_or_text_of_a_stranger_is_refused_before_it_takes_more_than_its_limit) {
  const auto made = [](std::uint32_t parts) {
    const std::string bytes = packed(parts) + std::string(kResultFrame, '\0');  // empty texts
    Unpacker in(bytes);
    std::vector<std::string> list;
    in(list);
    EXPECT_EQ(in.ok(), list.size() == parts) << parts;
    return list.size();
  };
  EXPECT_EQ(words(made(kMostParts), made(kMostParts + 1), made(kResultFrame / 4)),
            words(kMostParts, 0, 0));
  EXPECT_TRUE(unpack<Go>(pack(Go{1, "s", std::string(kSmallFrame, 'x')})));
  EXPECT_FALSE(unpack<Go>(pack(Go{1, "s", std::string(kSmallFrame + 1, 'x')})));
}

template <class Message>
void is_refused_cut(const Message& message) {
  const std::string whole = pack(message);
  EXPECT_TRUE(unpack<Message>(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(unpack<Message>(std::string_view(whole).substr(0, size))) << size;
  }
}

TEST(Wire, every_message_cut_short_is_refused) {
  is_refused_cut(Hello{{0, 8, 0, 4, 0, "node1", "mpirun"}, "p", 1, 2, 3, 4, "gone"});
  is_refused_cut(Roster{.root_host = "node0", .processes = {{1, 2, 3}, {4, 5, 6}}});
  is_refused_cut(some_state());
  is_refused_cut(Go{1, "s", "{}"});
  is_refused_cut(Welcome{});
  is_refused_cut(ClockQuestion{1, 2, true});
  is_refused_cut(ClockReading{1, 2, "boot"});
  is_refused_cut(ClockAnswer{1, -2, 3, ""});
}

TEST(Wire, a_reading_that_no_clock_shows_is_refused) {
  EXPECT_TRUE(unpack<ClockReading>(pack(ClockReading{1, INT64_MAX / 4, ""})));
  for (const std::int64_t ns : {INT64_MIN, std::int64_t{-1}, INT64_MAX / 4 + 1, INT64_MAX}) {
    EXPECT_FALSE(unpack<ClockReading>(pack(ClockReading{1, ns, ""}))) << ns;
  }
  EXPECT_FALSE(unpack<ClockReading>(pack(ClockReading{1, 1, std::string(300, 'x')})));
}

template <class... Messages>
void read_all(const std::string& bytes) {
  (static_cast<void>(unpack<Messages>(bytes)), ...);
  FrameReader reader;
  reader.feed(bytes.data(), bytes.size());
  while (const auto frame = reader.next())
    (static_cast<void>(unpack<Messages>(frame->payload)), ...);
}

TEST(Wire, random_bytes_never_hurt) {
  std::mt19937 random(42);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    std::string changed = encode(FrameKind::kState, pack(some_state()));
    changed[random() % changed.size()] = static_cast<char>(random());
    for (const std::string& read : {bytes, changed}) {
      read_all<Hello, State, Go, Roster, ClockQuestion, ClockReading, ClockAnswer>(read);
    }
  }
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    for (const int shift : {4, 0}) text += "0123456789abcdef"[c >> shift & 15];
  }
  return text;
}

TEST(Hmac, is_that_of_rfc_4231) {
  const std::string rows[][3] = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"}};
  for (const auto& [key, text, code] : rows) EXPECT_EQ(hex(hmac_sha256(key, text)), code) << text;
  EXPECT_EQ(words(same_secret("abc", "abc"), same_secret("abc", "abd"), same_secret("abc", "abcd")),
            words(true, false, false));
}

TEST(Address, text_and_parse_are_inverse) {
  const std::string text = "10.0.0.1,fd00::1,192.168.1.2:29600#abc:def";
  const RootAddress address = RootAddress::parse(text);
  EXPECT_EQ(address.hosts, (std::vector<std::string>{"10.0.0.1", "fd00::1", "192.168.1.2"}));
  EXPECT_EQ(words(address.port, address.token, address.text(), address.resolve().size()),
            words(29600, "abc:def", text, 3));
  EXPECT_EQ(RootAddress::parse("[fd00::1]:80#x").hosts.front(), "fd00::1");
  EXPECT_EQ(random_token().size(), 32U) << "128 bits";
  EXPECT_NE(random_token(), random_token());
}

}  // namespace
}  // namespace oddrank::control

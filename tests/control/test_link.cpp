// When a guard counts the root as lost: real sockets, simulated time.
#include <gtest/gtest.h>
#include <poll.h>

#include "control/link.hpp"

namespace oddrank::control::link_test {
namespace {

class LinkToAPublishedRoot : public testing::Test {
 protected:
  LinkToAPublishedRoot() {
    port_ = port_of(listen_on(0).get());  // refuses: the listener is closed again
    link_.dial(RootAddress{{"127.0.0.1"}, port_, "token"}, Hello{}, true);
  }
  // One turn of a guard's loop, at `seconds` of simulated time.
  void turn(double seconds) {
    const auto now = static_cast<std::int64_t>(seconds * 1e9);
    link_.tick(now);
    std::vector<pollfd> polls;
    link_.add_polls(polls);
    ::poll(polls.data(), polls.size(), 100);
    link_.work(now);
  }
  // Lets the last try fail, then the loop see it.
  bool is_lost_when_refused(double seconds) {
    turn(seconds);
    turn(seconds + 0.01);
    return link_.lost();
  }

  std::uint16_t port_ = 0;
  Link link_;
};

TEST_F(LinkToAPublishedRoot, is_lost_after_five_seconds_of_refusals) {
  EXPECT_FALSE(is_lost_when_refused(1));
  EXPECT_FALSE(is_lost_when_refused(5.9));
  EXPECT_TRUE(is_lost_when_refused(6.1));
}

TEST_F(LinkToAPublishedRoot, counts_five_seconds_from_the_last_time_that_it_was_accepted) {
  EXPECT_FALSE(is_lost_when_refused(1));
  {
    const Fd listener = listen_on(port_);
    for (const double seconds : {2.0, 6.2, 6.3}) {
      turn(seconds);
      EXPECT_FALSE(link_.lost()) << "a busy root accepts, and answers later";
    }
  }
  EXPECT_FALSE(is_lost_when_refused(7));
  EXPECT_FALSE(is_lost_when_refused(11.8));
  EXPECT_TRUE(is_lost_when_refused(12.2));
}

}  // namespace
}  // namespace oddrank::control::link_test

// When a guard counts the root as lost: real sockets, simulated time.
#include <gtest/gtest.h>
#include <poll.h>

#include "control/link.hpp"
#include "listener.hpp"

namespace oddrank::control::link_test {
namespace {

class LinkToAPublishedRoot : public testing::Test {
 protected:
  LinkToAPublishedRoot() {
    port_ = port_of(listen_on(0));  // refuses: the listener is closed again
    link_.dial(RootAddress{{"127.0.0.1"}, port_, "token"}.text(), Hello{}, true);
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

TEST_F(LinkToAPublishedRoot, is_lost_five_seconds_after_it_was_last_accepted_or_first_refused) {
  EXPECT_FALSE(is_lost_when_refused(2));
  EXPECT_FALSE(is_lost_when_refused(6.4));
  {
    const Fd listener = listen_on(port_);
    for (const double seconds : {6.8, 11.0, 11.1}) {
      turn(seconds);
      EXPECT_FALSE(link_.lost()) << "a busy root accepts, and answers later";
    }
  }
  EXPECT_FALSE(is_lost_when_refused(11.8));
  EXPECT_FALSE(is_lost_when_refused(16.6));
  EXPECT_TRUE(is_lost_when_refused(17));
}

}  // namespace
}  // namespace oddrank::control::link_test

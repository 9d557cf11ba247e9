// The feed gives every event once or counts it as missing. Checks the text of events, too.
#include <gtest/gtest.h>

#include "../words.hpp"
#include "record_builder.hpp"
#include "trace/nicer/text.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {
namespace {

Place line(std::uint32_t number, std::uint32_t code = 1) {
  return Place::of(code, number, static_cast<std::uint8_t>(Kind::kLine));
}

std::uint32_t number_of(const FedEvent& event) { return event.place.position(); }

std::deque<FedEvent> read(EventFeed& feed, std::uint32_t silent = 0) {
  std::deque<FedEvent> events;
  feed.read(events, silent);
  return events;
}

TEST(EventFeed, gives_what_is_new_of_all_threads_in_the_order_of_time) {
  RecordBuilder record;
  record.thread(0, "main", {});
  record.event(0, 10, line(1));
  EventFeed feed(record.open(), true);
  record.thread(1, "worker", {});
  record.event(1, 12, line(2));
  record.event(0, 11, line(3));
  record.event(0, 13, line(4));
  const auto events = read(feed);
  EXPECT_EQ(each(events, number_of, &FedEvent::tid), "3 100, 2 101, 4 100");
  EXPECT_TRUE(read(feed).empty());
  record.event(1, 14, line(5));
  EXPECT_TRUE(read(feed, 101).empty()) << "a silent thread";
}

TEST(EventFeed, counts_what_was_overwritten_before_it_came) {
  RecordBuilder record;  // rings of 16 events
  record.thread(0, "main", {});
  EventFeed feed(record.open(), false);
  for (std::uint32_t i = 0; i < 40; ++i) record.event(0, i, line(i));
  auto events = read(feed);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].missing + events.size() - 1, 40U);
  EXPECT_EQ(events[1].place.position(), events[0].missing) << "the first one after the gap";
  record.event(0, 40, line(40));
  EXPECT_EQ(read(feed).size(), 1U);
}

TEST(EventFeed, begins_anew_with_a_thread_that_has_the_slot_of_another) {
  RecordBuilder record;
  record.thread(0, "first", {});
  record.event(0, 1, line(1));
  EventFeed feed(record.open(), false);
  EXPECT_EQ(each(read(feed), number_of), "1");
  record.slot(0).head = 0;
  record.slot(0).state = static_cast<std::uint64_t>(ThreadState::kLive) | std::uint64_t{2} << 32;
  record.event(0, 2, line(2));
  EXPECT_EQ(each(read(feed), number_of), "2");
  // One without a ring has only a count.
  record.thread(1, "second", {}).ring_events = 0;
  record.slot(1).head = 7;
  EXPECT_EQ(each(read(feed), &FedEvent::missing), "7");
}

TEST(TextWriter, writes_calls_lines_gaps_and_days) {
  RecordBuilder record;
  record.entry(EntryKind::kText, 1, "/site/pkg/image.py");
  record.code(1, "Image.new", 1, 12);
  const std::vector<FedEvent> events = {
      {1'000, Place::of(1, kNoPosition, static_cast<std::uint8_t>(Kind::kCall)), 1, 0},
      {1'000, line(2), 1, 0},
      {0, Place{}, 1, 9},
      {1'000, line(123'456), 1, 0},
      {1'000, line(1, 99), 1, 0},  // its code is unknown
  };
  // A tick is a nanosecond here; the run began a day, an hour, a minute and a second ago.
  const std::uint64_t day = 90'061'000'000'000;
  const Clock clock({{1'000, 1'000, day}, {2'000, 2'000, day + 1'000}});
  TextWriter text({true, true, false, 0, 5, "", {"/site/"}});
  EXPECT_EQ(text.learn(record.open(), events), std::vector<std::string>{"/site/pkg/image.py"});
  const std::vector<std::string> source = {"first\n", "    second\r\n"};
  text.add_source("/site/pkg/image.py", source);
  std::string out;
  text.write(events, clock, out);
  EXPECT_EQ(out,
            "5  pkg.image:12 new\n"
            "5 1 day, 1:01:01 image.py:     2:     second\n"
            "5 --- 9 events are missing here: there was no room to keep them until they were "
            "written\n"
            "5 1 day, 1:01:01 image.py:123456: \n");
  EXPECT_EQ(text.lines().size(), 2U);
}

}  // namespace
}  // namespace oddrank::trace

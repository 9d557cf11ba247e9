"""Checks the order of what happened: what clocks allow to say, and what they don't."""

from oddrank.triage.facts import Call, Death, Group, Process, Progress, Source, Trouble
from oddrank.triage.timeline import Event, lines, ordered, timeline

SOURCE = Source("job.log", 1)


def test_events_of_all_kinds_are_in_one_order():
    facts = [
        Progress(Process(0), Group("0", (), "default_pg"), SOURCE, time=700.0, timed_out=True,
                 open=(Call(5, "all_reduce", since=100.0),)),
        Death(Process(3), "signal", SOURCE, 50.0, signal=9),
        Trouble("xid", "GPU has fallen off the bus", SOURCE, "node7", "GPU 0", time=49.0),
        Death(Process(1), "exit", SOURCE),
    ]  # fmt: skip
    assert [(event.time, event.ranks, event.text) for event in timeline(facts)] == [
        (49.0, (), "GPU 0: GPU has fallen off the bus"),
        (50.0, (3,), "ended by signal 9"),
        (100.0, (0,), "entered all_reduce 5"),
        (700.0, (0,), "timed out in all_reduce 5 of group default_pg"),
    ]


def test_what_all_ranks_say_at_once_is_one_event():
    facts = [Death(Process(rank), "exception", SOURCE, 10.0 + rank / 10, text="ValueError: x")
             for rank in range(4)]  # fmt: skip
    (event,) = timeline(facts)
    assert (event.ranks, event.count) == ((0, 1, 2, 3), 4)


def test_clocks_of_two_hosts_order_nothing_that_is_close():
    def event(time, host, coarse=False):
        return Event(time, "x", Source(f"{host}.log"), host, coarse=coarse)

    assert ordered(event(1.0, "a"), event(1.1, "a"))
    assert not ordered(event(1.0, "a"), event(1.1, "b"))
    assert ordered(event(1.0, "a"), event(3.0, "b"))
    assert not ordered(event(1.0, "a", coarse=True), event(1.5, "a"))


def test_times_without_a_zone_order_nothing_against_those_with_one():
    def event(hours, wall):
        return Event(hours * 3600.0, "x", SOURCE, "a", wall=wall)

    assert not ordered(event(0, True), event(9, False))
    assert not ordered(event(0, False), event(13, True))
    assert ordered(event(0, False), event(15, True))
    assert ordered(event(0, True), event(1, True))


def test_lines_over_an_hour_have_dates_instead_of_seconds():
    first = 1776595348.8586
    near, far = (
        lines([Event(first, "a", SOURCE, "n0"), Event(first + apart, "b", SOURCE, "n0")])
        for apart in (3600, 15067797.8)
    )
    assert near == ["    +0.000 s  n0: a", " +3600.000 s  n0: b"]
    assert far == [" 2026-04-19 10:42:28.859  n0: a", " 2026-10-10 20:12:26.659  n0: b"]


def test_lines_mark_what_is_not_sure_and_count_the_rest():
    events = [Event(float(n // 2), f"event {n}", SOURCE, "a", coarse=True) for n in range(30)]
    found = lines(events, most=4)
    assert found[0].startswith("    +0.000 s  a: event 0")
    assert found[1].startswith("~")
    assert found[-1] == "... and 26 more"

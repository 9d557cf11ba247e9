"""Checks the order of what happened: what clocks allow to say, and what they don't."""

from dataclasses import replace

from oddrank.triage.facts import Call, Death, Group, Process, Progress, Source, Span, Stop, Trouble
from oddrank.triage.timeline import Event, lines, ordered, timeline
from oddrank.triage.view import view

SOURCE = Source("job.log", 1)
DEFAULT = Group("0", (), "default_pg")
HOUR = 3600.0


def death(how, at, rank=3, pid=None, **more):
    return Death(Process(rank, None, pid), how, SOURCE, at, **more)


def test_events_of_all_kinds_are_in_one_order(golden):
    call = Call(5, "all_reduce", since=100.0)
    facts = [
        Progress(Process(0), DEFAULT, SOURCE, time=700.0, timed_out=True, open=(call,)),
        Progress(Process(0), Group(""), SOURCE, time=700.5, timed_out=True),
        Progress(Process(1), DEFAULT, SOURCE, time=700.0, open=(call,)),
        *(death("exception", 10.0 + n / 10, n, text="ValueError: x\nmore") for n in range(4)),
        # A source without a host tells the same of rank 3.
        Death(Process(3, "node7"), "exception", SOURCE, 10.4, text="ValueError: x\nmore"),
        death("signal", 50.0, signal=9), death("exit", None, 1), death("exit", 51.0, code=7),
        death("oom", 52.0, None, 77, by="kernel"), death("abort", 53.0, text="NCCL gave up"),
        death("evicted", 54.0, by="scheduler", text="low on memory"), death("exit", 55.0),
        Trouble("xid", "GPU has fallen off the bus", SOURCE, "node7", "GPU 0", time=49.0, count=3),
        Trouble("boot", "it booted", SOURCE, "node7", time=48.5, coarse=True),
        Stop("SLURM", SOURCE, 800.0, why="time limit"), Stop("torchrun", SOURCE, 801.0, signal=15),
    ]  # fmt: skip
    found = timeline(facts)
    assert [event.time for event in found] == sorted(event.time for event in found)
    assert [(event.ranks, event.count) for event in found[:1]] == [((0, 1, 2, 3), 4)]
    assert len(found) == len(facts) + 1 - 2 - 4  # a call began, two have no time, five are one
    golden("\n".join(lines(found)))


def test_clocks_order_what_is_farther_apart_than_they_may_be():
    def event(time, host="a", **more):
        return Event(time, "x", Source(f"{host}.log"), host, **more)

    no_zone, coarse = {"wall": True}, {"coarse": True}
    for first, second, expected in (
        (event(1.0), event(1.1), True), (event(1.0), event(1.1, "b"), False),
        (event(1.0), event(2.0, "b"), False), (event(1.0), event(2.1, "b"), True),
        (event(1.0, **coarse), event(1.5), False), (event(1.0, **coarse), event(2.5), True),
        (event(0, **no_zone), event(9 * HOUR), False),
        (event(0), event(13 * HOUR, **no_zone), False),
        (event(0), event(15 * HOUR, **no_zone), True),
        (event(0, **no_zone), event(1 * HOUR, **no_zone), True),
    ):  # fmt: skip
        assert ordered(first, second) is expected, (first, second)


def test_lines_have_times_in_utc_and_many_are_counted(golden):
    first = 1776595348.8586
    pairs = [
        lines([Event(first, "a", SOURCE, "n0"), Event(first + apart, "b", SOURCE, "n0")])
        for apart in (HOUR, 15067797.8)
    ]
    many = [Event(float(n // 2), f"event {n}", SOURCE, "a", coarse=True) for n in range(30)]
    golden("\n".join([*pairs[0], *pairs[1], *lines(many, most=4)]))


def test_a_kill_hours_before_the_end_is_another_jobs_and_left_out():
    place = Source("dmesg", 7)
    for gap, count in ((1 * HOUR, 3), (3 * HOUR, 1)):
        facts = [
            death("oom", 10.0, None, 77, by="kernel"),
            Trouble("oom", "out of memory: the kernel killed python", place, time=10.0, pids=(77,)),
            death("exception", 10.0 + gap, text="ValueError: x"),
        ]
        facts[0] = replace(facts[0], source=place)
        assert len(timeline(view(facts).own_facts)) == count, gap


def test_a_kill_before_the_job_began_is_left_out_of_what_happened():
    kill = Trouble("oom", "the kernel killed python", SOURCE, host="a", time=10.0)
    for began, count in ((20.0, 0), (5.0, 1)):
        seen = view([Span("a", began, SOURCE), kill])
        assert len(timeline(seen.own_facts)) == count, began

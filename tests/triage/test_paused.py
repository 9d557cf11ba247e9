"""A pause on purpose explains why its ranks stand, and no other rank."""

from dataclasses import replace

from oddrank.inputs import Notes
from oddrank.pauses import Pause
from oddrank.triage import report
from oddrank.triage.facts import Death, Frame, Paused, Process, Source, Stack, State, Thread, World
from progress import done
from triage.told import check, ended, into

NOW = 10_000.0
LOCK = (Frame("wait", "/usr/lib/python3.11/threading.py", 327), Frame("train", "train.py", 41))
C10D = "/x/site-packages/torch/distributed/distributed_c10d.py"
ALL_REDUCE = (Frame("all_reduce", C10D, 2), Frame("train", "train.py", 41))
HANGS = (Frame("acquire", "/usr/lib/python3.11/threading.py", 9), *LOCK[1:])
KILLED = Death(Process(3), "signal", Source("states"), NOW, signal=9)


def pause(rank, kind="waits", what="3", seconds=3600.0, **more):
    made = Pause(kind, seconds, what, NOW - 312)
    return Paused(Process(rank), made, Source(f"rank{rank}"), NOW, **more)


def at_breakpoint(debugged, *others):
    return [
        pause(debugged, "breakpoint", "train.py:41"),
        *(pause(rank, "waits", str(debugged)) for rank in others),
    ]


def stacks(*frames):
    return [
        Stack(own, (Thread(Process(rank), "MainThread", rank, "asleep", time=NOW),))
        for rank, own in enumerate(frames)
    ]


STOPPED = State(Process(3), "stopped", Source("states"), NOW)
PAUSED_4 = at_breakpoint(0, 1, 2, 3)
DONE_4 = ended(7, 0, 1, 2, 3, backend="gloo")
WAIT_FOR_3 = [*into(8, 0, 1, 2), done(3, 7)]
NAMED = ("not-entered", (3,), 2)


def test_only_a_pause_that_explains_why_a_rank_stands_clears_it(golden):
    late = pause(3, "breakpoint", "train.py:41", seconds=100.0)
    two = [*into(8, 0, 1), *ended(7, 2, 3)]
    everyone = at_breakpoint(3, 0, 1, 2)
    check(golden, {
        "one is in a breakpoint": ([*WAIT_FOR_3, *at_breakpoint(3)], ("paused", (3,), 2)),
        "for two ranks, one of them in a breakpoint":
            ([*two, *at_breakpoint(3)], ("not-entered", (2,), 2)),
        "one is stopped while the others are paused":
            ([*DONE_4, *PAUSED_4[:3], STOPPED], ("host-stopped", (3,), 1)),
        "one is stopped in its pause": ([*DONE_4, *PAUSED_4, STOPPED], ("host-stopped", (3,), 1)),
        "one hangs elsewhere while the others are paused":
            ([*stacks(LOCK, LOCK, LOCK, HANGS), *PAUSED_4[:3]], ("host-stuck", (3,), 1)),
        "one may run while the others are paused":
            ([*stacks(LOCK, LOCK, LOCK, LOCK[1:]), *PAUSED_4[:3]], ("host-stuck", (3,), 0)),
        "one does not get out of a breakpoint": ([*WAIT_FOR_3, pause(3, "waits", "0")], NAMED),
        "beyond its deadline": ([*WAIT_FOR_3, late], NAMED),
        "one died in its pause": ([*DONE_4, *PAUSED_4, KILLED], ("dead", (3,), 2)),
        "paused ranks that stand in a lock":
            ([*stacks(LOCK, LOCK, LOCK, LOCK), *everyone], ("paused", (3, 0, 1, 2), 2)),
        "paused ranks that stand in a call":
            ([*stacks(ALL_REDUCE, ALL_REDUCE, ALL_REDUCE, LOCK), *everyone],
             ("paused", (3, 0, 1, 2), 2)),
    })  # fmt: skip


def test_the_report_says_who_is_paused_and_how_to_go_on(golden):
    where = stacks(LOCK, LOCK, LOCK, LOCK)
    rows = {
        "some, which are gone": [replace(one, gone=True) for one in PAUSED_4[:2]],
        "the others wait for one in a breakpoint": [*DONE_4, *at_breakpoint(3, 0, 1, 2)],
        "one may run": [*stacks(LOCK, LOCK, LOCK, LOCK[1:]), *PAUSED_4[:3]],
        "five breakpoints": [pause(rank, "breakpoint", f"train.py:{rank}") for rank in range(5)],
        "one that waits": [pause(0, "waits", "3")],
        "killed in a breakpoint": [*DONE_4, *where, *at_breakpoint(3, 0, 1, 2), KILLED],
        "killed as it waited": [*DONE_4, *where, *at_breakpoint(0, 1, 2, 3), KILLED],
    }
    lines = []
    for name, facts in rows.items():
        judged = {"": [World(4, Source("rank0")), *facts]}
        made = report.made(report.judge(judged, [], Notes(), {}))
        expected = "dead" if "killed" in name else "unknown" if "run" in name else "healthy"
        assert made.verdict == ("odd" if expected == "dead" else expected), name
        lines.append(f"{name}: {made.summary}\n")
    golden("".join(lines))

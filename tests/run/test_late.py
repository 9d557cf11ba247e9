"""Late ranks of a running job: named if they stay late by their own doing, and nobody else."""

import pytest

from oddrank.run import late
from oddrank.run.late import Clocks, Lateness
from oddrank.run.snapshot import Snapshot
from oddrank.run.watch import Work
from run.made_job import MadeBackward, MadeJob

SHARED = Clocks(dict.fromkeys(range(64), "node0"), {})
UNKNOWN = Clocks({}, {})
LATE = {"late": {1: 0.02}}
NOBODY = ". . . ."


def on_device(histories):
    """Makes them NCCL's: their times on the device are known, and hosts' clocks tell nothing."""
    for rank, own in histories.items():
        off = rank * 10**12
        histories[rank] = [
            c._replace(state="timed", begin_ns=c.begin_ns + off, end_ns=c.end_ns + off) for c in own
        ]


def told(job, *reports, clocks=SHARED, steps=64, change=lambda histories: None):
    """Runs a report for each lateness of ranks, as MadeJob.runs() takes it.

    Returns what each one tells: `.` nothing, `+1` that rank 1 is late.
    change: changes the histories before they are judged.
    """
    lateness, texts = Lateness(), []
    for how in reports:
        histories = job.runs(steps, **how)
        change(histories)
        named = [f"+{one.rank}" for _, one in lateness.look(histories, clocks)]
        texts.append("".join(named) or ".")
    return " ".join(texts)


def test_a_late_rank_is_named_in_the_second_report_and_only_once():
    for world in (2, 3, 4, 8, 32):
        for seed in range(5):
            found = told(MadeJob(world, seed=seed), *[LATE] * 4)
            assert found == ". +1 . .", (world, seed)


def test_what_is_said_of_a_late_rank():
    job, lateness = MadeJob(4), Lateness()
    lateness.look(job.runs(64, **LATE), SHARED)
    ((kind, one),) = lateness.look(job.runs(64, **LATE), SHARED)
    assert (kind.group, kind.ranks, kind.op) == ("default", (0, 1, 2, 3), "all_reduce")
    assert one.by == pytest.approx(20_000, rel=0.1)
    assert one.others == pytest.approx(50_000, rel=0.1)
    assert (one.share, one.n) == (1.0, 63)  # the first has no predecessor


def test_a_healthy_job_and_jitter_name_nobody():
    for world in (2, 4, 8, 16):
        for seed in range(10 if world < 16 else 4):
            found = told(MadeJob(world, jitter=0.003, seed=seed), *[{}] * 6)
            assert found == f"{NOBODY} . .", (world, seed)
        for seed in range(20 if world < 16 else 0):
            found = told(MadeJob(world, seed=seed), *[LATE | {"share": 0.3}] * 6)
            assert found == f"{NOBODY} . .", (world, seed)


def differ(histories):
    for rank, own in histories.items():
        histories[rank] = [each._replace(bytes=each.seq) for each in own]


LEAVES = {"leaves": {0: 0.004, 2: 0.004, 3: 0.004}}  # rank 1 is let go first
SLOW = {"step": 1.0}  # 20 ms are next to nothing
THRICE = {"groups": [("default", (0, 1, 2, 3))] * 3}
# Ranks, their job, what each report shows, and what it tells.
REPORTS = {
    "late now and then": (4, {}, (LATE, {}, LATE, {}), NOBODY),
    "late twice, not one after the other": (4, {}, (LATE, {}, {}, LATE), NOBODY),
    "late for the first time": (4, {}, ({}, {}, {}, LATE), NOBODY),
    "late, well, and late again":
        (4, {}, (LATE, LATE, {}, LATE, {}, {}, {}, LATE, LATE), ". +1 . . . . . . ."),
    "others leave before it": (4, {}, [{"leaves": {1: 0.02}}] * 4, NOBODY),
    "the other one leaves before it": (2, {}, [{"leaves": {1: 0.02}}] * 4, NOBODY),
    "let go first, comes late": (4, {}, [LATE | LEAVES] * 2, ". +1"),
    "two ranks, the latest first": (8, {}, [{"late": {5: 0.02, 3: 0.04}}] * 2, ". +3+5"),
    "late to one of the collectives of a step": (4, THRICE, [LATE] * 3, ". +1 ."),
    "late by next to nothing": (4, SLOW, [LATE] * 4, NOBODY),
    "late, then by next to nothing":
        (4, SLOW, [{"late": {1: seconds}} for seconds in (0.2, 0.2, 0.02, 0.02)], ". +1 . ."),
    # Only what all wait for is judged.
    "of a broadcast": (4, {}, [LATE | {"op": "broadcast_", "root": 0}] * 4, NOBODY),
    "of a message": (4, {}, [LATE | {"op": "send", "peer": 0, "tag": 0}] * 4, NOBODY),
    "of no number": (4, {}, [LATE | {"seq": None}] * 4, NOBODY),
    "fewer than twenty collectives": (4, {}, [LATE] * 4, NOBODY, {"steps": 4}),
    "collectives that all differ": (4, {}, [LATE] * 3, ". +1 .", {"change": differ}),
}  # fmt: skip


def test_a_rank_is_named_that_stays_late_and_no_other():
    for name, (world, job, reports, expected, *more) in REPORTS.items():
        assert told(MadeJob(world, **job), *reports, **dict(*more)) == expected, name


def test_on_a_device_the_rank_that_spends_the_least_time_in_calls_is_late():
    for name, (world, job, reports, expected, *more) in REPORTS.items():
        how = dict(*more)
        change = how.pop("change", lambda histories: None)

        def both(histories, change=change):
            change(histories)
            on_device(histories)

        found = told(MadeJob(world, **job), *reports, change=both, clocks=UNKNOWN, **how)
        assert found == expected, name
    for world in (2, 4, 8, 16):
        for seed in range(10 if world < 16 else 4):
            found = told(MadeJob(world, jitter=0.003, seed=seed), *[{}] * 6, change=on_device)
            assert found == f"{NOBODY} . .", (world, seed)
    for groups in (TENSOR + DATA, DATA + TENSOR):
        for seed in range(5):
            found = told(MadeJob(4, groups, seed=seed), *[LATE] * 3, change=on_device)
            assert found == ". +1 .", (groups, seed)


def test_a_slow_backward_pass_that_all_reduces_hide_is_seen():
    faults = {
        "none": ({}, NOBODY),
        "a backward pass": ({"slow": {3: 1.2}}, ". +3 . ."),
        "a loader": ({"loads": {2: 0.01}}, ". +2 . ."),
        "both, of two ranks": ({"slow": {1: 1.4}, "loads": {2: 0.004}}, ". +1+2 . ."),
    }
    for name, (how, expected) in faults.items():
        for world in (4, 8):
            found = told(MadeBackward(world), *[how] * 4, steps=60, clocks=UNKNOWN)
            assert found == expected, name
    for seed in range(10):
        job = MadeBackward(8, jitter=0.002, seed=seed)
        assert told(job, *[{}] * 4, steps=60, clocks=UNKNOWN) == NOBODY, seed


def test_calls_that_were_noted_twice_or_in_part_count_once():
    job, lateness = MadeBackward(4), Lateness()
    for turn in range(2):
        made = job.runs(60, slow={3: 1.2})
        half = {rank: [*own[-200:], *own[:-50:7]] for rank, own in made.items()}
        found = lateness.look(half | {0: made[0]}, UNKNOWN)
        assert [one.rank for _, one in found] == [3] * turn


def test_the_same_collectives_are_not_evidence_twice():
    job, lateness = MadeJob(4), Lateness()
    histories = job.runs(64, **LATE)
    for _ in range(3):
        assert not lateness.look(histories, SHARED)
    assert not lateness.look(job.runs(late.FEWEST - 1, **LATE), SHARED)
    assert lateness.look(job.runs(1, **LATE), SHARED)


TENSOR = [("tp", (0, 1)), ("tp", (2, 3))]
DATA = [("dp", (0, 2)), ("dp", (1, 3))]


def test_of_ranks_that_come_late_since_they_waited_for_another_only_the_other_is_named():
    """Rank 0 comes late to its data-parallel group, too: it waited for rank 1 before."""
    for groups in (TENSOR + DATA, DATA + TENSOR):
        for seed in range(5):
            found = told(MadeJob(4, groups, seed=seed), *[LATE] * 3)
            assert found == ". +1 .", (groups, seed)


# Between two collectives on the host, rank 1 waited for other ranks' GPUs, or for a message.
WAITED = {
    "gpus": lambda c: c._replace(
        group="gpus", state="issued", begin_ns=c.begin_ns - 65_000_000, end_ns=None),
    "message": lambda c: c._replace(
        op="recv", peer=7, begin_ns=c.begin_ns - 20_000_000, end_ns=c.begin_ns - 1000),
}  # fmt: skip


@pytest.mark.parametrize("waits", WAITED)
def test_what_a_rank_waits_for_between_two_collectives_is_not_its_own_time(waits):
    def change(histories):
        own = histories[1]
        histories[1] = sorted([*own, *map(WAITED[waits], own)], key=lambda each: each.begin_ns)

    assert told(MadeJob(2), *[LATE] * 4, steps=32) == ". +1 . ."
    assert told(MadeJob(2), *[LATE] * 4, steps=32, change=change) == NOBODY


def test_a_group_is_judged_while_records_of_all_its_ranks_are_there():
    gone = iter((None, 3, None, None, None, 3, None))
    found = told(MadeJob(4), *[LATE] * 7, change=lambda histories: histories.pop(next(gone), None))
    # Whether a rank without a report is still late is not known.
    assert found == ". . . +1 . . ."


def test_a_new_group_of_the_same_name_begins_anew():
    lateness = Lateness()
    old, new = MadeJob(4), MadeJob(4, seed=2)
    assert not lateness.look(old.runs(500, **LATE), SHARED)
    assert not lateness.look(new.runs(64, **LATE), SHARED)
    assert lateness.look(new.runs(64, **LATE), SHARED)


def test_empty_records_name_nobody():
    assert Lateness().look({0: [], 1: []}, SHARED) == []


HOSTS = {0: "node0", 1: "node1", 2: "node0", 3: "node1"}
HOUR = {"ahead": {1: 3600.0, 3: 3600.0}}


def two_hosts(*of_node1):
    return Clocks(HOSTS, {"node0": (0.0, 0.0), **({"node1": of_node1} if of_node1 else {})})


# What a clock shows, what is known of it, and what is told.
CLOCKS = {
    "known": (LATE | HOUR, two_hosts(3600e6, 2000.0), ". +1 . ."),
    "vague": (LATE | HOUR, two_hosts(3600e6, 30_000.0), NOBODY),
    "unknown": (LATE | HOUR, two_hosts(), NOBODY),
    "less exact than it seems, behind": ({"ahead": {1: -0.03, 3: -0.03}}, two_hosts(0, 0), NOBODY),
    "less exact than it seems, ahead": ({"ahead": {1: 0.03, 3: 0.03}}, two_hosts(0, 0), NOBODY),
    "of one host": (
        LATE | {"ahead": dict.fromkeys(range(4), 3600.0)},
        Clocks(dict.fromkeys(range(4), "node7"), {}), ". +1 . .",
    ),
}  # fmt: skip


def test_ranks_of_another_host_are_compared_as_exactly_as_its_clock():
    for name, (how, clocks, expected) in CLOCKS.items():
        assert told(MadeJob(4), *[how] * 4, clocks=clocks) == expected, name


def clocks_of(**seconds):
    """Returns the clocks of a question from 100.000 to 100.010, answered by ranks at `seconds`."""
    answers = {int(rank[1:]): Work(1, at, 0.0, 0) for rank, at in seconds.items()}
    return late.clocks_of(Snapshot(answers, asked=100.0, answered=100.01), HOSTS, "node0")


def test_clocks_are_known_to_half_of_the_questions_time():
    """Several guards of a host narrow it down."""
    clocks = clocks_of(r0=100.005, r1=150.010, r3=150.002)
    assert clocks.offsets["node0"] == (0.0, 0.0)
    # Ahead by 50.000 to 50.010 says rank 1, by 49.992 to 50.002 says rank 3.
    assert clocks.offsets["node1"] == pytest.approx((50.001e6, 1000), abs=10)


def test_two_hosts_of_one_name_have_no_clock():
    clocks = clocks_of(r1=150.0, r3=170.0)
    assert "node1" not in clocks.offsets
    assert clocks.compare((0, 1)) is None
    assert clocks.compare((0, 9)) is None

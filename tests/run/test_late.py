"""Late ranks of a running job: named if they stay late by their own doing, and nobody else."""

from pathlib import Path

import pytest

from oddrank.run import late
from oddrank.run.late import Clocks, Lateness
from oddrank.run.snapshot import Snapshot
from oddrank.run.watch import Work
from run.made_job import MadeJob

SHARED = Clocks(dict.fromkeys(range(64), "node0"), {})


def named(job, *reports, clocks=SHARED, steps=64):
    """Runs a report for each lateness of rank 1, as MadeJob.runs() takes it; returns who is named
    in each."""
    lateness = Lateness()
    found = []
    for how in reports:
        told = lateness.look(job.runs(steps, **how), clocks)
        found.append([one.rank for _, one in told.named])
    return found


LATE = {"late": {1: 0.02}}


@pytest.mark.parametrize("world", [2, 3, 4, 8, 32])
def test_a_late_rank_is_named_in_the_second_report_and_only_once(world):
    for seed in range(5):
        assert named(MadeJob(world, seed=seed), LATE, LATE, LATE, LATE) == [[], [1], [], []]


def test_what_is_said_of_a_late_rank():
    job, lateness = MadeJob(4), Lateness()
    lateness.look(job.runs(64, **LATE), SHARED)
    ((kind, one),) = lateness.look(job.runs(64, **LATE), SHARED).named
    assert (kind.group, kind.ranks, kind.op) == ("default", (0, 1, 2, 3), "all_reduce")
    assert one.by == pytest.approx(20_000, rel=0.1)
    assert one.others == pytest.approx(50_000, rel=0.1)
    assert (one.share, one.n) == (1.0, 63)  # the first has no predecessor


@pytest.mark.parametrize("world", [2, 4, 8, 16])
def test_a_healthy_job_has_no_late_rank(world):
    for seed in range(10):
        job = MadeJob(world, jitter=0.003, seed=seed)
        assert not any(named(job, *[{}] * 6))


@pytest.mark.parametrize("world", [2, 4, 8])
def test_jitter_names_nobody(world):
    for seed in range(20):
        job = MadeJob(world, seed=seed)
        assert not any(named(job, *[LATE | {"share": 0.3}] * 6))


@pytest.mark.parametrize("reports", [(LATE, {}, LATE, {}), (LATE, {}, {}, LATE), ({}, {}, LATE)])
def test_a_rank_that_is_late_now_and_then_is_not_named(reports):
    assert not any(named(MadeJob(4), *reports))


def test_a_rank_is_late_until_two_reports_show_it_well():
    job, lateness = MadeJob(4), Lateness()
    over = [
        lateness.look(job.runs(64, **how), SHARED).over
        for how in (LATE, LATE, {}, LATE, {}, {}, {}, LATE)
    ]
    assert over == [(), (), (), (), (), (1,), (), ()]
    assert [one.rank for _, one in lateness.look(job.runs(64, **LATE), SHARED).named] == [1]


def test_the_same_collectives_are_not_evidence_twice():
    job, lateness = MadeJob(4), Lateness()
    histories = job.runs(64, **LATE)
    for _ in range(3):
        assert not lateness.look(histories, SHARED).named
    assert not lateness.look(job.runs(late.FEWEST - 1, **LATE), SHARED).named
    assert lateness.look(job.runs(1, **LATE), SHARED).named


def test_fewer_than_twenty_collectives_name_nobody():
    assert not any(named(MadeJob(4), *[LATE] * 4, steps=4))


def test_a_rank_that_others_leave_before_is_not_late():
    """Some collectives let a rank go later, always the same one."""
    assert not any(named(MadeJob(4), *[{"leaves": {1: 0.02}}] * 4))
    assert not any(named(MadeJob(2), *[{"leaves": {1: 0.02}}] * 4))


def test_a_rank_that_is_let_go_first_and_comes_late_is_named():
    how = LATE | {"leaves": {0: 0.004, 2: 0.004, 3: 0.004}}
    assert named(MadeJob(4), how, how) == [[], [1]]


def test_two_late_ranks_are_both_named_the_latest_first():
    how = {"late": {5: 0.02, 3: 0.04}}
    assert named(MadeJob(8), how, how) == [[], [3, 5]]


TENSOR = [("tp", (0, 1)), ("tp", (2, 3))]
DATA = [("dp", (0, 2)), ("dp", (1, 3))]


@pytest.mark.parametrize("groups", [TENSOR + DATA, DATA + TENSOR])
def test_of_ranks_that_come_late_since_they_waited_for_another_only_the_other_is_named(groups):
    """Rank 0 comes late to its data-parallel group, too: it waited for rank 1 before."""
    for seed in range(5):
        assert named(MadeJob(4, groups, seed=seed), LATE, LATE, LATE) == [[], [1], []]


def test_a_rank_that_is_late_to_one_of_the_collectives_of_a_step_is_named():
    groups = [("default", (0, 1, 2, 3))] * 3
    assert named(MadeJob(4, groups), LATE, LATE, LATE) == [[], [1], []]


def test_lateness_that_costs_next_to_nothing_is_not_told():
    job, lateness = MadeJob(4, step=1.0), Lateness()
    assert not any(named(job, *[LATE] * 4))
    found = []
    for seconds in (0.2, 0.2, 0.02, 0.02):
        told = lateness.look(job.runs(64, late={1: seconds}), SHARED)
        found.append(([one.rank for _, one in told.named], told.over))
    assert found == [([], ()), ([1], ()), ([], ()), ([], (1,))]


def test_ranks_that_use_a_device_are_not_judged():
    """Between two collectives on the host they may have waited for other ranks' GPUs."""
    job, lateness = MadeJob(2), Lateness()
    for _ in range(4):
        histories = job.runs(32, **LATE)
        for each in list(histories[1]):
            begin = each.begin_ns - 65_000_000
            histories[1].append(
                each._replace(group="gpus", state="issued", begin_ns=begin, end_ns=None)
            )
        histories[1].sort(key=lambda each: each.begin_ns)
        assert not lateness.look(histories, SHARED).named


@pytest.mark.parametrize(
    "facts", [{"op": "broadcast_", "root": 0}, {"op": "send", "peer": 0, "tag": 0}, {"seq": None}]
)
def test_only_what_all_wait_for_is_judged(facts):
    assert not any(named(MadeJob(4), *[LATE | facts] * 4))


def test_what_a_rank_waits_for_in_a_message_is_not_its_own_time():
    job, lateness = MadeJob(2), Lateness()
    for _ in range(4):
        histories = job.runs(32, **LATE)
        for each in list(histories[1]):
            begin = each.begin_ns - 20_000_000
            histories[1].append(
                each._replace(op="recv", peer=7, begin_ns=begin, end_ns=each.begin_ns - 1000)
            )
        histories[1].sort(key=lambda each: each.begin_ns)
        assert not lateness.look(histories, SHARED).named


def test_a_group_is_judged_while_records_of_all_its_ranks_are_there():
    job, lateness = MadeJob(4), Lateness()
    found = []
    for gone in (None, 3, None, None, None, 3, None):
        histories = job.runs(64, **LATE)
        histories.pop(gone, None)
        told = lateness.look(histories, SHARED)
        found.append(([one.rank for _, one in told.named], told.over))
    # Whether a rank without a report is still late is not known.
    assert found == [([], ()), ([], ()), ([], ()), ([1], ()), ([], ()), ([], ()), ([], ())]


def test_a_new_group_of_the_same_name_begins_anew():
    lateness = Lateness()
    old, new = MadeJob(4), MadeJob(4, seed=2)
    assert not lateness.look(old.runs(500, **LATE), SHARED).named
    assert not lateness.look(new.runs(64, **LATE), SHARED).named
    assert lateness.look(new.runs(64, **LATE), SHARED).named


def test_empty_records_name_nobody():
    told = Lateness().look({0: [], 1: []}, SHARED)
    assert (told.named, told.over) == ((), ())


HOSTS = {0: "node0", 1: "node1", 2: "node0", 3: "node1"}


def test_ranks_of_another_host_are_compared_as_exactly_as_its_clock():
    ahead = {"ahead": {1: 3600.0, 3: 3600.0}}
    known = Clocks(HOSTS, {"node0": (0.0, 0.0), "node1": (3600e6, 2000.0)})
    assert named(MadeJob(4), *[LATE | ahead] * 2, clocks=known) == [[], [1]]
    vague = Clocks(HOSTS, {"node0": (0.0, 0.0), "node1": (3600e6, 30_000.0)})
    assert not any(named(MadeJob(4), *[LATE | ahead] * 4, clocks=vague))
    unknown = Clocks(HOSTS, {"node0": (0.0, 0.0)})
    assert not any(named(MadeJob(4), *[LATE | ahead] * 4, clocks=unknown))


@pytest.mark.parametrize("wrong", [-0.03, 0.03])
def test_a_clock_that_is_less_exact_than_it_seems_names_nobody(wrong):
    known = Clocks(HOSTS, {"node0": (0.0, 0.0), "node1": (0.0, 0.0)})
    ahead = {"ahead": {1: wrong, 3: wrong}}
    assert not any(named(MadeJob(4), *[ahead] * 4, clocks=known))


def test_ranks_of_one_host_need_no_common_clock():
    ahead = {"ahead": dict.fromkeys(range(4), 3600.0)}
    clocks = Clocks(dict.fromkeys(range(4), "node7"), {})
    assert named(MadeJob(4), *[LATE | ahead] * 2, clocks=clocks) == [[], [1]]


def work(seconds):
    return Work(1, seconds, 0.0, 0, 0)


def test_clocks_are_known_to_half_of_the_questions_time():
    """Several guards of a host narrow it down."""
    answers = {0: work(100.005), 1: work(150.010), 3: work(150.002)}
    snapshot = Snapshot(Path(), answers, {}, asked=100.0, answered=100.010)
    clocks = late.clocks_of(snapshot, HOSTS, "node0")
    assert clocks.offsets["node0"] == (0.0, 0.0)
    offset, error = clocks.offsets["node1"]
    # Ahead by 50.000 to 50.010 says rank 1, by 49.992 to 50.002 says rank 3.
    assert offset == pytest.approx(50.001e6, abs=10)
    assert error == pytest.approx(1000, abs=10)


def test_two_hosts_of_one_name_have_no_clock():
    answers = {1: work(150.0), 3: work(170.0)}
    snapshot = Snapshot(Path(), answers, {}, asked=100.0, answered=100.010)
    clocks = late.clocks_of(snapshot, HOSTS, "node0")
    assert "node1" not in clocks.offsets
    assert clocks.compare((0, 1)) is None
    assert clocks.compare((0, 9)) is None

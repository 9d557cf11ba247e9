"""The culprits of a stage that did not end: every rule as rows of a table, no process."""

import signal
from dataclasses import replace

import pytest

from oddrank.control.culprits import (
    PUBLISHING,
    RankEvidence,
    RoundEvidence,
    culprits,
    torn_down,
)


def rank(number, **facts):
    """Returns a rank of two nodes with two ranks each: healthy, but for `facts`."""
    node = number // 2
    healthy = RankEvidence(
        number, f"node{node}", node, number % 2, contact="ok", stage="all_reduce", progress=10
    )
    return replace(healthy, **facts)


def blamed(*changed, world=4, through=(), reason="fault", stage="all_reduce"):
    """Returns (cause, ranks) of every culprit if all other ranks wait in the collective."""
    states = {r: rank(r, waiting=r not in through, stage=stage) for r in range(world)}
    states |= {s.rank: s for s in changed}
    results = {r: b"{}" for r in through}
    found = culprits(RoundEvidence(stage, results, states, reason))
    return [(c.cause, c.ranks) for c in found]


KILLED = {"state": "dead", "signal": signal.SIGKILL}
ABORTED = {"state": "dead", "signal": signal.SIGABRT}
EXITED = {"state": "dead", "exit_code": 0}
RAISED = {"failed": "RuntimeError: no"}


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (KILLED, "killed"),
        ({**KILLED, "state": "zombie"}, "killed"),
        ({**KILLED, "signal": signal.SIGSEGV}, "killed"),
        (EXITED, "exited"),
        ({"state": "dead"}, "ended"),
        ({"state": "stopped"}, "stopped"),
    ],
)
def test_a_rank_that_ended_or_stopped_is_named_wherever_it_stood(who, waiting, facts, cause):
    assert blamed(rank(who, waiting=waiting, **facts)) == [(cause, (who,))]


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize(("facts", "cause"), [(RAISED, "raised"), (ABORTED, "killed")])
def test_a_rank_that_raised_or_aborted_outside_a_collective_is_named(who, facts, cause):
    assert blamed(rank(who, **facts)) == [(cause, (who,))]


@pytest.mark.parametrize("victim", [RAISED, ABORTED])
@pytest.mark.parametrize("own", [KILLED, EXITED, RAISED, {"state": "stopped"}])
def test_ranks_that_were_torn_down_inside_the_collective_are_victims(victim, own):
    others = [rank(r, waiting=True, **victim) for r in (0, 1, 3)]
    (cause, ranks), *more = blamed(rank(2, **own), *others)
    assert (ranks, more) == ((2,), [])
    assert cause in ("killed", "exited", "raised", "stopped")


def test_victims_are_listed_beside_the_culprit():
    states = {r: rank(r, waiting=True) for r in range(4)} | {2: rank(2, **KILLED)}
    round = RoundEvidence("barrier", {0: b""}, states, "fault")
    assert culprits(round)[0].victims == (1, 3)


@pytest.mark.parametrize("end", [KILLED, {"state": "dead", "signal": signal.SIGTERM}, EXITED])
def test_a_rank_ended_by_its_launcher_after_anothers_death_is_a_victim(end):
    assert blamed(rank(2, **KILLED), rank(3, sigterm=True, **end)) == [("killed", (2,))]


def test_ranks_that_only_the_launcher_ended_name_nobody():
    everyone = [rank(r, sigterm=True, **KILLED) for r in range(4)]
    assert blamed(*everyone, reason="terminated") == []


@pytest.mark.parametrize(
    ("changed", "results", "over"),
    [
        ([rank(r, sigterm=True, **KILLED) for r in range(4)], {}, True),
        ([rank(r, sigterm=True, **KILLED) for r in (1, 2, 3)], {0: b"{}"}, True),
        ([rank(r, sigterm=True, **KILLED) for r in (1, 2, 3)], {}, False),  # rank 0 may go on
        ([rank(r, waiting=True, **ABORTED) for r in range(4)], {}, False),  # no launcher did it
    ],
)
def test_a_round_is_over_when_the_launcher_has_ended_all_that_are_not_through(
    changed, results, over
):
    states = {r: rank(r) for r in range(4)} | {s.rank: s for s in changed}
    assert torn_down(RoundEvidence("all_reduce", results, states, "fault")) is over


def test_two_ranks_with_faults_of_their_own_are_both_named():
    assert blamed(rank(2, **KILLED), rank(3, state="stopped")) == [
        ("killed", (2,)),
        ("stopped", (3,)),
    ]


def test_a_rank_that_died_after_it_gave_its_result_is_named():
    assert blamed(rank(1, **KILLED), through=(0, 1, 2, 3)) == [("killed", (1,))]


def test_a_complete_round_names_nobody():
    assert blamed(through=(0, 1, 2, 3), reason="complete") == []


# Join: which ranks came?

NEVER = {"contact": "never", "host": "", "node": -1, "stage": ""}


def test_a_rank_that_never_came_is_named_when_the_time_to_join_is_over():
    missing = rank(3, **NEVER)
    facts = {"through": (0, 1, 2), "stage": "join"}
    assert blamed(missing, reason="fault", **facts) == []
    assert blamed(missing, reason="deadline", **facts) == [("never-came", (3,))]


def test_ranks_that_never_came_are_one_finding():
    missing = [rank(r, **NEVER) for r in (2, 3)]
    assert blamed(*missing, reason="deadline", through=(0, 1), stage="join") == [
        ("never-came", (2, 3))
    ]


@pytest.mark.parametrize(
    ("facts", "cause", "reason"),
    [
        (KILLED, "killed", "fault"),
        ({"state": "stopped"}, "stopped", "fault"),
        (RAISED, "raised", "fault"),
        ({}, "no-progress", "deadline"),
    ],
)
def test_rank_0_alone_is_named_when_it_never_published_its_address(facts, cause, reason):
    nobody = [rank(r, **NEVER) for r in (1, 2, 3)]
    root = rank(0, stage="join", **facts)
    for through in ((), (0,)):  # rank 0's guard always joins
        found = blamed(root, *nobody, reason=reason, stage="join", through=through)
        assert found == [(cause, (0,))]


def test_nobody_is_named_when_rank_0s_address_did_not_get_through():
    nobody = [rank(r, **NEVER) for r in (1, 2, 3)]
    root = rank(0, stage="join", step=PUBLISHING)
    found = blamed(root, *nobody, reason="deadline", stage="join", through=(0,))
    assert found == [("no-address", ())]


def test_all_others_are_missing_when_rank_0_did_publish_its_address():
    nobody = [rank(r, **NEVER) for r in (1, 2, 3)]
    root = rank(0, stage="join", waiting=True)
    assert blamed(root, *nobody, reason="deadline", through=(0,), stage="join") == [
        ("never-came", (1, 2, 3))
    ]


def test_a_death_among_those_who_came_goes_before_those_who_have_not_come_yet():
    assert blamed(rank(1, **KILLED), rank(3, **NEVER), through=(0,), stage="join") == [
        ("killed", (1,))
    ]


# Silent guards.


@pytest.mark.parametrize(("contact", "cause"), [("silent", "link-cut"), ("closed", "node-lost")])
def test_a_node_of_which_all_guards_are_lost_is_one_finding(contact, cause):
    node1 = [rank(r, contact=contact) for r in (2, 3)]
    assert blamed(*node1) == [(cause, (2, 3))]


def test_the_survivors_of_a_lost_node_are_victims_also_when_they_raise():
    node1 = [rank(r, contact="silent") for r in (2, 3)]
    gave_up = [rank(r, waiting=True, **RAISED) for r in (0, 1)]
    assert blamed(*node1, *gave_up) == [("link-cut", (2, 3))]


def test_when_every_other_node_is_silent_the_roots_own_link_is_named():
    others = [rank(r, contact="silent") for r in range(2, 8)]
    assert blamed(*others, world=8) == [("link-cut", (0, 1))]


def test_where_rank_0_never_came_and_one_of_three_nodes_speaks_the_silent_ones_are_named():
    absent = [rank(r, contact="never", host="", node=-1) for r in range(2)]
    silent = [rank(r, contact="silent") for r in range(2, 6)]
    spoken = blamed(*absent, *silent, world=8)
    assert spoken == [("link-cut", (2, 3)), ("link-cut", (4, 5))]


def test_when_every_other_node_has_ended_they_are_named():
    others = [rank(r, contact="closed") for r in range(2, 6)]
    assert blamed(*others, world=6) == [("node-lost", (2, 3)), ("node-lost", (4, 5))]


@pytest.mark.parametrize("contact", ["silent", "closed"])
def test_a_single_guard_that_is_lost_does_not_condemn_its_node(contact):
    assert blamed(rank(3, contact=contact)) == [("guard-lost", (3,))]
    assert blamed(rank(1, contact=contact)) == [("guard-lost", (1,))]


def test_the_stage_is_the_one_in_which_the_culprit_stands():
    states = {r: rank(r, waiting=True) for r in range(4)}
    states[2] = rank(2, stage="device", **KILLED)
    round = RoundEvidence("all_reduce", {}, states, "fault")
    assert culprits(round)[0].stage == "device"


def test_whose_fault_came_first_is_named_first():
    late, early = {**KILLED, "first_fault_ns": 9}, {**KILLED, "first_fault_ns": 5}
    assert blamed(rank(1, **late), rank(3, **early)) == [("killed", (3,)), ("killed", (1,))]


def test_of_two_nodes_that_lose_each_other_neither_is_surely_the_cause():
    silent = [rank(r, contact="silent") for r in (2, 3)]
    states = {r: rank(r, waiting=True) for r in range(2)} | {s.rank: s for s in silent}
    made = RoundEvidence("device", {}, states, "fault")
    (culprit,) = culprits(made)
    assert (culprit.cause, culprit.ranks, culprit.certain) == ("link-cut", (2, 3), False)


@pytest.mark.parametrize(("facts", "cause"), [(ABORTED, "killed"), (RAISED, "raised")])
def test_a_rank_0_that_ends_while_it_waits_for_the_others_is_not_called_stuck(facts, cause):
    never = [rank(r, contact="never") for r in (1, 2, 3)]
    root = rank(0, waiting=True, stage="join", **facts)
    assert blamed(root, *never, stage="join", reason="deadline") == [(cause, (0,))]


@pytest.mark.parametrize(
    ("facts", "stage"),
    [
        ({"stage": "device", "published": True}, "all_reduce"),  # reported, or about to be
        ({"stage": "device"}, "device"),
        ({"stage": "join"}, "join"),  # join has no results
    ],
)
def test_who_stopped_between_two_stages_is_due_in_the_second(facts, stage):
    states = {r: rank(r, waiting=True) for r in range(4)} | {2: rank(2, state="stopped", **facts)}
    made = RoundEvidence("all_reduce", {}, states, "fault")
    (culprit,) = culprits(made)
    assert (culprit.ranks, culprit.stage) == ((2,), stage)


# Launchers that end.

TORCHRUN = {"launcher": "torchrun", "launcher_pid": 100, "local_world": 2}


@pytest.mark.parametrize("changed", [{}, RAISED, {"waiting": True}])
def test_a_launcher_that_has_gone_is_told_and_no_rank(changed):
    node1 = [rank(r, orphaned=True, **TORCHRUN, **changed) for r in (2, 3)]
    assert blamed(*node1) == [("launcher-gone", ())]


@pytest.mark.parametrize("waiting", [False, True])
def test_a_launcher_that_has_gone_explains_what_all_ranks_raised(waiting):
    ranks = [rank(r, orphaned=True, waiting=waiting, **TORCHRUN, **RAISED) for r in range(4)]
    assert blamed(*ranks) == [("launcher-gone", ())]


def test_a_rank_that_was_killed_is_named_beside_a_launcher_that_has_gone():
    killed = rank(2, orphaned=True, **TORCHRUN, **KILLED)
    assert blamed(killed) == [("killed", (2,))]
    left = rank(3, orphaned=True, **TORCHRUN)
    assert sorted(blamed(killed, left)) == [("killed", (2,)), ("launcher-gone", ())]


def test_a_rank_whose_parent_may_leave_goes_on():
    assert blamed(rank(2, orphaned=True, waiting=True)) == []


def ended_by(pid, number, **facts):
    return rank(number, stage="join", sigterm=True, sigterm_by=pid, **TORCHRUN, **facts)


@pytest.mark.parametrize("missing", [(2,), (3,), (0,)])
def test_a_rank_that_has_not_joined_when_its_launcher_ends_the_job_is_named(missing):
    there = [r for r in range(4) if r not in missing]
    came = [ended_by(100, r) for r in there]
    never = [rank(r, **NEVER) for r in missing]
    found = blamed(*came, *never, stage="join", through=there, reason="terminated")
    assert found == [("never-joined", missing)]


def test_a_rank_of_another_host_may_only_be_slow_when_a_launcher_ends_the_job():
    came = [ended_by(100, r) for r in (0, 1)]
    never = [rank(r, **NEVER) for r in (2, 3)]
    assert blamed(*came, *never, stage="join", through=(0, 1), reason="terminated") == []


def test_a_signal_from_anybody_but_the_launcher_names_no_rank():
    came = [ended_by(77, r) for r in (0, 1, 2)]
    never = rank(3, **NEVER)
    assert blamed(*came, never, stage="join", through=(0, 1, 2), reason="terminated") == []


# Nodes that lose each other.


def test_a_guard_that_gave_up_the_root_lives_and_so_does_its_node():
    parted = rank(2, contact="gave-up", parting="silent for 5000 ms")
    assert blamed(parted, rank(3, contact="closed")) == [("lost-each-other", (2, 3))]
    assert blamed(parted, world=6) == [("lost-each-other", (2, 3))]


def test_a_rank_that_said_why_it_does_not_reach_rank_0_is_not_missing():
    cut_off = [rank(r, **NEVER, unreached="node1: no answer") for r in (2, 3)]
    root = rank(0, stage="join", waiting=True)
    found = blamed(root, *cut_off, through=(0, 1), stage="join", reason="deadline")
    assert found == [("unreachable-root", (2, 3))]


def test_ranks_of_another_world_are_told_as_soon_as_they_come():
    states = {0: rank(0, stage="join"), 1: rank(1, **NEVER)}
    round = RoundEvidence("join", (0,), states, "fault", other_worlds=[1])
    assert [c.cause for c in culprits(round)] == ["other-world"]


def test_a_launcher_that_has_gone_is_told_though_all_ranks_are_through():
    gone = [rank(r, orphaned=True, launcher="torchrun", launcher_pid=5) for r in range(3)]
    found = blamed(*gone, stage="join", through=(0, 1, 2), reason="fault")
    assert found == [("launcher-gone", ())]


# Reasons that concern all ranks.


def test_ranks_that_find_no_room_at_the_root_are_missing_before_the_deadline():
    states = {0: rank(0, stage="join", waiting=True), 1: rank(1, **NEVER)}
    round = RoundEvidence("join", (0,), states, "fault")
    assert culprits(round) == []
    full = replace(round, limits="the open-file limit lets at most 1 of 2 ranks reach the root")
    assert [(c.cause, c.ranks) for c in culprits(full)] == [("never-came", (1,))]


@pytest.mark.parametrize("waiting", [(), (0, 1, 2, 3)])
def test_where_all_ranks_raise_the_same_no_rank_is_odd(waiting):
    ranks = [rank(r, waiting=r in waiting, **RAISED) for r in range(4)]
    assert blamed(*ranks) == [("all-raised", ())]


def test_ranks_that_raise_the_same_are_named_where_others_do_not():
    ranks = [rank(r, **RAISED) for r in range(3)]
    assert blamed(*ranks) == [("raised", (r,)) for r in range(3)]
    assert blamed(rank(0, **RAISED), world=1) == [("raised", (0,))]
    other = rank(3, failed="RuntimeError: another")
    assert blamed(*ranks, other) == [("raised", (r,)) for r in range(4)]
    causes = [cause for cause, _ in blamed(*ranks, rank(3, **KILLED))]
    assert sorted(causes) == ["killed", "raised", "raised", "raised"]

"""The culprits of a stage that did not end: every rule as rows of tables, no process."""

import signal
from dataclasses import replace

from oddrank.control.culprits import (
    PUBLISHING,
    Culprit,
    Motion,
    RankEvidence,
    RoundEvidence,
    culprits,
    torn_down,
)
from oddrank.control.root import RankState


def rank(number, **facts):
    """Returns a rank of two nodes with two ranks each: healthy, but for `facts`."""
    node = number // 2
    healthy = RankEvidence(
        number, f"node{node}", node, number % 2, contact="ok", stage="all_reduce", progress=10
    )
    return replace(healthy, **facts)


def each(*numbers, **facts):
    return [rank(number, **facts) for number in numbers]


def found(*changed, world=4, through=(), reason="fault", stage="all_reduce", **facts):
    """Returns the culprits if all ranks but those `changed` wait in the collective."""
    states = {r: rank(r, waiting=r not in through, stage=stage) for r in range(world)}
    states |= {one.rank: one for ranks in changed for one in ranks}
    results = {r: b"{}" for r in through}
    return culprits(RoundEvidence(stage, results, states, reason, **facts))


def row(said, *changed, **round):
    """A row of a table: the causes and ranks that are to be named, and what found() takes."""
    return said, changed, round


def check(rows):
    for name, (said, changed, round) in rows.items():
        named = found(*changed, **round)
        text = "; ".join(f"{c.cause} {','.join(map(str, c.ranks))}".strip() for c in named)
        assert text == said, name


KILLED = {"state": "dead", "signal": signal.SIGKILL}
ABORTED = {"state": "dead", "signal": signal.SIGABRT}
EXITED = {"state": "dead", "exit_code": 0}
RAISED = {"failed": "RuntimeError: no"}
STOPPED = {"state": "stopped"}
OWN_FAULTS = [
    ("killed", KILLED),
    ("killed", {**KILLED, "state": "zombie"}),
    ("killed", {**KILLED, "signal": signal.SIGSEGV}),
    ("exited", EXITED),
    ("ended", {"state": "dead"}),
    ("stopped", STOPPED),
]


def test_a_rank_with_a_fault_of_its_own_is_named_wherever_it_stood():
    for who in (0, 2):
        for cause, facts in OWN_FAULTS:
            for waiting in (False, True):
                said = row(f"{cause} {who}", each(who, waiting=waiting, **facts))
                check({f"{facts}, waiting: {waiting}": said})
        # Inside a collective another rank may have done it.
        for cause, facts in (("raised", RAISED), ("killed", ABORTED)):
            check({cause: row(f"{cause} {who}", each(who, **facts))})


def test_ranks_that_were_torn_down_inside_the_collective_are_victims():
    for victim in (RAISED, ABORTED):
        for cause, own in [*OWN_FAULTS, ("raised", RAISED)]:
            others = each(0, 1, 3, waiting=True, **victim)
            check({f"{own}, {victim}": row(f"{cause} 2", each(2, **own), others)})
    (culprit,) = found(each(2, **KILLED), through=(0,))
    assert culprit.victims == (1, 3)


DEATHS = {
    "two on their own": row("killed 2; stopped 3", each(2, **KILLED), each(3, **STOPPED)),
    "after its result": row("killed 1", each(1, **KILLED), through=(0, 1, 2, 3)),
    "complete round": row("", through=(0, 1, 2, 3), reason="complete"),
    "the first fault is named first": row(
        "killed 3; stopped 1", each(1, first_fault_ns=9, **STOPPED),
        each(3, first_fault_ns=5, **KILLED),
    ),
    "only the launcher": row("", each(0, 1, 2, 3, sigterm=True, **KILLED), reason="terminated"),
    **{
        f"then the launcher ends another: {end}": row(
            "killed 2", each(2, **KILLED), each(3, sigterm=True, **end)
        )
        for end in (KILLED, {"state": "dead", "signal": signal.SIGTERM}, EXITED, RAISED)
    },
    # Reasons that concern all ranks.
    "all raise the same": row("all-raised", each(0, 1, 2, 3, **RAISED)),
    "all raise the same inside": row("all-raised", each(0, 1, 2, 3, waiting=True, **RAISED)),
    "three raise, one does not": row("raised 0; raised 1; raised 2", each(0, 1, 2, **RAISED)),
    "three raise inside, one does not": row("", each(0, 1, 2, waiting=True, **RAISED)),
    "a world of one raises": row("raised 0", each(0, **RAISED), world=1),
    "one raises another": row(
        "raised 0; raised 1; raised 2; raised 3",
        each(0, 1, 2, **RAISED), each(3, failed="RuntimeError: another"),
    ),
    "one dies meanwhile": row(
        "raised 0; raised 1; raised 2; killed 3", each(0, 1, 2, **RAISED), each(3, **KILLED)
    ),
    "inside, each names its peer": row(
        "", *(each(r, waiting=True, failed=f"connection to {r} lost") for r in range(4))
    ),
}  # fmt: skip


def test_deaths_and_errors():
    check(DEATHS)


def test_a_round_is_over_when_the_launcher_has_ended_all_that_are_not_through():
    for changed, results, over in (
        (each(0, 1, 2, 3, sigterm=True, **KILLED), {}, True),
        (each(1, 2, 3, sigterm=True, **KILLED), {0: b"{}"}, True),
        (each(1, 2, 3, sigterm=True, **KILLED), {}, False),  # rank 0 may go on
        (each(0, 1, 2, 3, waiting=True, **ABORTED), {}, False),  # no launcher did it
    ):
        states = {r: rank(r) for r in range(4)} | {s.rank: s for s in changed}
        assert torn_down(RoundEvidence("all_reduce", results, states, "fault")) is over


NEVER = {"contact": "never", "host": "", "node": -1, "stage": ""}
JOIN = {"stage": "join", "through": (0,)}
LATE = {**JOIN, "reason": "deadline"}
ROOT = {"stage": "join", "waiting": True}  # it has published its address
CAME = {
    "time is left": row("", each(3, **NEVER), stage="join", through=(0, 1, 2)),
    "one never came": row(
        "never-came 3", each(3, **NEVER), stage="join", through=(0, 1, 2), reason="deadline"
    ),
    "two are one finding": row(
        "never-came 2,3", each(2, 3, **NEVER), stage="join", through=(0, 1), reason="deadline"
    ),
    "rank 0 published": row("never-came 1,2,3", each(0, **ROOT), each(1, 2, 3, **NEVER), **LATE),
    "rank 0's address got lost": row(
        "no-address", each(0, stage="join", step=PUBLISHING), each(1, 2, 3, **NEVER), **LATE
    ),
    **{
        f"rank 0 did not publish, through: {through}, {facts}": row(
            f"{cause} 0", each(0, stage="join", **facts), each(1, 2, 3, **NEVER),
            stage="join", through=through, reason=reason,
        )
        for cause, facts, reason in (
            ("killed", KILLED, "fault"),
            ("stopped", STOPPED, "fault"),
            ("raised", RAISED, "fault"),
            ("no-progress", {}, "deadline"),
        )
        for through in ((), (0,))  # rank 0's guard always joins
    },
    **{
        f"rank 0 ends while it waits for the others: {cause}": row(
            f"{cause} 0", each(0, **ROOT, **facts), each(1, 2, 3, **NEVER), **LATE
        )
        for cause, facts in (("killed", ABORTED), ("raised", RAISED))
    },
    "a death goes before those that may come": row(
        "killed 1", each(1, **KILLED), each(3, **NEVER), **JOIN
    ),
    "a rank says why it does not come": row(
        "unreachable-root 2,3", each(0, **ROOT),
        each(2, 3, **NEVER, unreached="node1: no answer"), **{**LATE, "through": (0, 1)},
    ),
    "another world comes": row(
        "other-world", each(0, stage="join"), each(1, **NEVER), world=2, other_worlds=[1], **JOIN
    ),
    "another world comes, and one never": row(
        "other-world; never-came 3", each(2, 3, **NEVER), other_worlds=[2],
        **{**LATE, "through": (0, 1)},
    ),
    "those that came raise the same": row(
        "raised 0; raised 1; raised 2", each(0, 1, 2, **RAISED), each(3, **NEVER), stage="join"
    ),
    "no room yet": row("", each(0, **ROOT), each(1, **NEVER), world=2, **JOIN),
    "no room": row(
        "never-came 1", each(0, **ROOT), each(1, **NEVER), world=2, limits="1 of 2 ranks", **JOIN
    ),
}  # fmt: skip


def test_ranks_that_do_not_come():
    check(CAME)


SILENT, CLOSED = {"contact": "silent"}, {"contact": "closed"}
LOST = {
    "all guards of a node fall silent": row("link-cut 2,3", each(2, 3, **SILENT)),
    "all guards of a node close": row("node-lost 2,3", each(2, 3, **CLOSED)),
    "survivors raise": row(
        "link-cut 2,3", each(2, 3, **SILENT), each(0, 1, waiting=True, **RAISED)
    ),
    "every other node is silent: the root's link": row(
        "link-cut 0,1", each(*range(2, 8), **SILENT), world=8
    ),
    "rank 0 never came, one of three speaks": row(
        "link-cut 2,3; link-cut 4,5",
        each(0, 1, contact="never", host="", node=-1), each(*range(2, 6), **SILENT), world=8,
    ),
    "every other node has ended": row(
        "node-lost 2,3; node-lost 4,5", each(*range(2, 6), **CLOSED), world=6
    ),
    "one guard is silent": row("guard-lost 3", each(3, **SILENT)),
    "one guard closed": row("guard-lost 3", each(3, **CLOSED)),
    "one guard of the root's node": row("guard-lost 1", each(1, **SILENT)),
    "a guard gave the root up": row(
        "lost-each-other 2,3", each(2, contact="gave-up", parting="silent"), each(3, **CLOSED)
    ),
    "a guard of three nodes gave the root up": row(
        "lost-each-other 2,3", each(2, contact="gave-up", parting="silent"), world=6
    ),
}  # fmt: skip


def test_guards_and_nodes_that_are_lost():
    check(LOST)
    (culprit,) = found(each(2, 3, **SILENT))
    assert not culprit.certain  # of two nodes either may have cut the link
    assert all(one.certain for one in found(each(2, 3, **CLOSED), world=6))


TORCHRUN = {"launcher": "torchrun", "launcher_pid": 100, "local_world": 2}
GONE = {"orphaned": True, **TORCHRUN}


def ended_by(pid, *numbers):
    return each(*numbers, stage="join", sigterm=True, sigterm_by=pid, **TORCHRUN)


def ends(*missing, by=100):
    """All other ranks get SIGTERM in join."""
    there = [r for r in range(4) if r not in missing]
    changed = ended_by(by, *there), each(*missing, **NEVER)
    return *changed, {"stage": "join", "through": there, "reason": "terminated"}


LAUNCHERS = {
    **{
        f"has gone: {facts}": row("launcher-gone", each(2, 3, **GONE, **facts))
        for facts in ({}, RAISED, {"waiting": True})
    },
    "explains what all raised": row("launcher-gone", each(0, 1, 2, 3, **GONE, **RAISED)),
    "explains what all raised inside": row(
        "launcher-gone", each(0, 1, 2, 3, waiting=True, **GONE, **RAISED)
    ),
    "all are through": row("launcher-gone", each(0, 1, 2, 3, **GONE), through=(0, 1, 2, 3)),
    "of a rank that was killed": row("killed 2", each(2, **GONE, **KILLED)),
    "beside a rank that was killed": row(
        "launcher-gone; killed 2", each(2, **GONE, **KILLED), each(3, **GONE)
    ),
    "no launcher needed": row("", each(2, orphaned=True, waiting=True)),
    **{
        f"ends the job, {missing} did not join": row(f"never-joined {missing}", *one, **round)
        for missing in (2, 3, 0)
        for *one, round in [ends(missing)]
    },
    **{
        f"ends the job, {name}": row("", *one, **round)
        for name, (*one, round) in {
            "another host may be slow": ends(2, 3),
            "and is not the sender": ends(3, by=77),
        }.items()
    },
    "no launcher ends the job": row(
        "", each(0, 1, 2, sigterm=True, local_world=2), each(3, **NEVER), reason="terminated"
    ),
}  # fmt: skip


def test_launchers_that_end():
    check(LAUNCHERS)


AT_DEADLINE = {"reason": "deadline"}
STUCK = {
    "waits for nobody, came least far": row("no-progress 2", each(2, progress=7), **AT_DEADLINE),
    "before the deadline": row("", each(2, progress=7), each(1, waiting=True, **RAISED)),
    "a slower one waits": row(
        "no-progress 2", each(2, progress=7), each(1, progress=7, waiting=True), **AT_DEADLINE
    ),
    "two wait for nobody": row(
        "no-progress 3", each(1, progress=9), each(3, progress=4), **AT_DEADLINE
    ),
    "two wait for nobody, as far": row(
        "no-progress 1; no-progress 3", each(1, 3, progress=4), **AT_DEADLINE
    ),
    "only one has no result": row("no-progress 2", each(2), through=(0, 1, 3), **AT_DEADLINE),
    "all wait": row("all-wait", **AT_DEADLINE),
    "a waiter is behind those that work": row(
        "all-wait", each(2, progress=8), each(1, progress=5, waiting=True), **AT_DEADLINE
    ),
    # Three ranks hang in step 7, one waits in step 9: it is ahead.
    "a minority elsewhere": row("all-wait", each(2, progress=9, waiting=True), **AT_DEADLINE),
    "the others gave up": row(
        "no-progress 2", each(2, progress=7), each(0, 1, 3, waiting=True, **RAISED), **AT_DEADLINE
    ),
    "one left the collective": row("raised 2", each(2, waiting=True, **RAISED), **AT_DEADLINE),
    "one left, another may explain it": row("", each(2, waiting=True, **RAISED)),
    "one left at its launcher's word": row(
        "all-wait", each(2, waiting=True, sigterm=True, **RAISED), **AT_DEADLINE
    ),
    "two left": row("all-wait", each(1, 2, waiting=True, **RAISED), **AT_DEADLINE),
    "inside the kernel, time is left": row("", each(2, state="uninterruptible")),
    "inside the kernel": row(
        "uninterruptible 2", each(2, state="uninterruptible", waiting=True), **AT_DEADLINE
    ),
    "inside the kernel after its result": row(
        "", each(2, state="uninterruptible"), through=(0, 1, 2, 3), **AT_DEADLINE
    ),
}  # fmt: skip


def test_ranks_that_are_stuck_at_the_deadline():
    check(STUCK)


def test_the_stage_is_the_one_in_which_the_culprit_stands():
    for facts, stage in (
        ({"stage": "device"}, "device"),
        ({"stage": "device", "published": True}, "all_reduce"),  # reported, or about to be
        ({"stage": "join"}, "join"),  # join has no results
        ({"stage": ""}, "all_reduce"),
    ):
        (culprit,) = found(each(2, state="stopped", **facts))
        assert (culprit.ranks, culprit.stage) == ((2,), stage)


# A rank that still moves at the deadline is slow, not stuck.

STILL = Culprit("no-progress", (1,), "device")
ALL_WAIT = Culprit("all-wait", (), "8 MiB", victims=(0, 1))


def excused(culprit, moves, now):
    """Returns whether `culprit` is excused if its ranks moved at these seconds: {rank: moves}."""
    clock = [0.0]
    motion = Motion(clock=lambda: clock[0])
    for second in range(int(now) + 1):
        clock[0] = second
        motion.see(
            RankState(rank, contact="ok", progress=sum(at <= second for at in times))
            for rank, times in moves.items()
        )
    clock[0] = now
    return motion.excuse([culprit]) == []


BOTH = {0: range(1, 9), 1: range(1, 9)}
ONLY_0 = {0: range(1, 9), 1: ()}


def test_only_who_lately_came_further_is_excused():
    for name, culprit, moves, now, result in (
        ("moved just now", STILL, BOTH, 8.1, True),
        ("stood as long before", STILL, BOTH, 9, True),
        ("stands longer than before", STILL, BOTH, 10, False),
        ("the others moved, it did not", STILL, ONLY_0, 8.1, False),
        ("was seen just now", STILL, {1: (0,)}, 0.4, True),
        ("was seen once", STILL, {1: (0,)}, 0.6, False),
        ("one long pause may be the import of torch", STILL, {1: (0, 8)}, 12, False),
        ("two long pauses", STILL, {1: (0, 4, 8)}, 12, True),
        ("longer pauses before, but this is too long", STILL, {1: (0, 120, 240)}, 246, False),
        ("all wait, some lately", ALL_WAIT, BOTH, 10, True),
        ("all wait, one lately", ALL_WAIT, ONLY_0, 10, True),
        ("all wait for long", ALL_WAIT, BOTH, 14, False),
        ("death", Culprit("killed", (1,), "device"), BOTH, 8, False),
        ("nobody was seen", STILL, {}, 1, False),
        ("nobody was seen waiting", ALL_WAIT, {}, 1, False),
    ):
        assert excused(culprit, moves, now) is result, name

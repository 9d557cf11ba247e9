"""Every cause of a stage's failure gives one finding that the report's schema accepts."""

import signal
from dataclasses import replace
from typing import get_args

from findings_shown import brief, shown
from oddrank.control import culprits, findings
from oddrank.control.culprits import Culprit
from oddrank.control.root import OddClaim, RankState, StageRound
from oddrank.control.stages import RunState
from oddrank.control.walk import judge_join
from oddrank.report import Report

TORCHRUN = {"launcher": "torchrun", "launcher_pid": 5, "local_world": 2}
GONE = {"orphaned": True, **TORCHRUN}
NETWORK, LOOPBACK = ("10.0.0.1", 29500), ("127.0.0.1", 29500)


def run(changed=(), *, master=None, nodes=2, **facts):
    """Returns a run of four ranks on two nodes; rank 2 has `facts`, others those of `changed`."""
    states = {
        rank: RankState(rank, f"node{rank // 2}", rank // 2, rank % 2, 7, "ok", stage="device")
        for rank in range(4)
    }
    for rank, other in {2: facts, **dict(changed)}.items():
        states[rank] = replace(states[rank], **other)
    return RunState(4, states, nodes=nodes, master=master)


def each(*ranks, **facts):
    return {rank: facts for rank in ranks}


NEVER = {"contact": "never", "host": "", "node": -1, "local_rank": -1, "pid": 0, "stage": ""}


def told(cause, ranks, seen, *, stage="device", victims=(), certain=True, **round):
    culprit = Culprit(cause, ranks, stage, victims, certain)
    return findings.of_round(StageRound(stage, {}, seen.states, "fault", **round), [culprit], seen)


def text(cases):
    return "\n\n".join(f"=== {name}\n{shown(found)}" for name, found in cases.items())


NOBODY = ("all-raised", "all-wait", "no-address", "launcher-gone")
NODE = ("node-lost", "link-cut", "lost-each-other")
ALL = run(
    {
        0: {"failed": "ValueError: no", "waiting": True},
        3: {"sigterm": True, "sigterm_by": 5, "waiting": True, "step": "copy", **TORCHRUN},
    },
    signal=signal.SIGKILL, exit_code=1, failed="ValueError: no", step="verify", orphaned=True,
    parting="silent for 5012 ms", unreached="node1: no answer", wchan="nfs_wait", **TORCHRUN,
)  # fmt: skip


def test_every_cause_is_one_finding_with_its_ranks_and_stage(golden):
    # Each other WORLD_SIZE gives a finding of its own.
    cases = {}
    for cause in set(get_args(culprits.Cause)) - {"other-world"}:
        ranks = () if cause in NOBODY else (2, 3) if cause in NODE else (2,)
        cases[cause] = told(cause, ranks, ALL, victims=tuple({0, 1, 3} - set(ranks)))
        (finding,) = cases[cause]
        assert (finding.cause, finding.who.ranks, finding.stage) == (cause, ranks, "device")
        assert finding.drains_node == (cause in ("uninterruptible", "node-lost", "link-cut")), cause
    golden(text(dict(sorted(cases.items()))))


def test_what_is_known_of_a_rank_makes_its_sentence(golden):
    ended = {"stage": "join", "sigterm": True, "sigterm_by": 5, **TORCHRUN, "local_world": 4}
    golden(
        text(
            {
                **{
                    f"killed by {number}": told("killed", (2,), run(signal=number))
                    for number in (signal.SIGBUS, signal.SIGSEGV, signal.SIGTERM, 99)
                },
                "stopped": told("stopped", (2,), run(state="stopped")),
                "exited with 0": told("exited", (2,), run(exit_code=0)),
                "raised alone inside": told("raised", (2,), run(failed="E: no"), certain=False),
                "raised at": told("raised", (2,), run(failed="E: no", raised_at="device.py:40")),
                "raised in join": told("raised", (2,), run(failed="E: no"), stage="join"),
                "all raised at": told(
                    "all-raised", (), run(each(0, failed="E: no", raised_at="device.py:40"))
                ),
                "in D state, not readable": told("uninterruptible", (2,), run()),
                "no step": told("no-progress", (2,), run()),
                "guard ended": told("guard-lost", (2,), run(contact="closed")),
                "own link": told("link-cut", (0, 1), run()),
                "one of two nodes": told("link-cut", (2, 3), run(), certain=False),
                "both of a host": told(
                    "never-joined", (2, 3), run(each(0, 1, **ended)), stage="join"
                ),
                "launcher of rank 0's node": told(
                    "launcher-gone", (), run(each(0, **GONE), master=NETWORK)
                ),
                "launcher of another node": told(
                    "launcher-gone", (), run(each(3, **GONE), master=NETWORK)
                ),
                "both launchers": told("launcher-gone", (), run(each(1, 3, **GONE))),
                "LOCAL_RANK": judge_join(run(each(3, local_rank=0))),
                "stage failed": [findings.stage_failed("device", "its plan", error())],
                "part failed": [findings.part_failed("the table", error())],
            }
        )
    )  # fmt: skip


def error():
    try:
        exec(compile("\n{}['x']", "plan.py", "exec"))
    except KeyError as raised:
        return raised
    raise AssertionError


CLAIMS = (
    OddClaim(2, False, "rank 2 (node1, pid 9) came although that rank was already here"),
    OddClaim(3, True, "rank 3 (node1, pid 9) says that the world has 8 ranks; the root says 4"),
)


def never_came(*ranks, changed=(), **options):
    seen = run({**each(*ranks, **NEVER), **dict(changed)}, master=NETWORK)
    if "master" in options:
        seen.master = options.pop("master")
    seen.nodes = options.pop("nodes", 2)
    return told("never-came", ranks, seen, stage="join", **options)


def test_ranks_that_never_came_may_be_kept_away_by_something_else(golden):
    cases = {
        "only rank 0 came": never_came(1, 2, 3),
        "one": never_came(3),
        "two": never_came(2, 3),
        "no address known": never_came(3, master=None),
        **{
            f"{address}, {ranks}": never_came(*ranks, master=(address, 29500))
            for address in ("127.0.0.1", "localhost", "::1")
            for ranks in ((1, 2, 3), (2, 3))
        },
        "loopback, but others of that host came": never_came(3, master=LOOPBACK),
        "loopback, but all may be here": never_came(1, 2, 3, master=LOOPBACK, nodes=1),
        "one came twice": never_came(3, odd=CLAIMS),
    }
    golden(text(cases))


def test_healthy_ranks_that_are_kept_away_are_not_named(golden):
    files = never_came(2, limits="the open-file limit on node0 (64, hard) lets at most 2 come")
    resolver = never_came(2, changed=each(0, resolver_slow=True))
    assert brief([*files, *resolver]) == "unknown open-files: nobody; unknown resolver: nobody"
    golden(text({"open files": files, "resolver": resolver}))


def test_a_rank_of_another_world_did_come():
    for missing, said in (((3,), ""), ((2, 3), "missing never-came: 2; ")):
        seen = run(each(*missing, **NEVER))
        came = {rank: b"" for rank in seen.states if rank not in missing}
        over = StageRound("join", came, seen.states, "deadline", other_worlds=(3,), odd=CLAIMS[1:])
        found = findings.of_round(over, culprits.culprits(over), seen)
        assert brief(found) == f"{said}mismatch other-world: nobody"
        assert found[-1].what == CLAIMS[1].text


def behind(cause, *ranks, stage="device"):
    return [Culprit(cause, (rank,), stage, victims=(0, 1)) for rank in ranks]


def test_who_did_not_wait_when_a_signal_ended_the_job_is_where_to_look_and_not_named(golden):
    waiting = run({**each(0, 1, waiting=True), **each(3, published=True)}, step="verify")
    one = findings.ended_early(behind("no-progress", 2, stage="collectives"), waiting)
    two = findings.ended_early(behind("uninterruptible", 2, 3), run(each(0, waiting=True)))
    golden(text({"one": one, "two": two}))
    for (finding,) in (one, two):
        assert (finding.condition, finding.who.ranks) == ("unknown", ())
        ended = Report.of("selftest", {"size": 4}, {}, [finding], complete=False)
        assert (ended.verdict, ended.exit_code()) == ("incomplete", 3)


def test_where_nobody_waited_or_nobody_stood_still_there_is_nothing_to_look_at():
    for suspects, waiters in (
        (behind("no-progress", 2), ()),
        ([Culprit("all-wait", (), "device")], (0, 1, 2, 3)),
        (behind("never-came", 3), (0, 1)),
    ):
        assert findings.ended_early(suspects, run(each(*waiters, waiting=True))) == []


def test_who_has_anothers_local_rank_is_named():
    for local_ranks, nodes, named in (
        ([0, 1, 2, 3], 1, []),
        ([0, 1, 0, 1], 2, []),
        ([0, 1, 1, 3], 1, [2]),
        ([0, 0, 2, 3], 1, [1]),
        ([1, 1], 1, [0]),
        ([0, 1, 1, 1], 2, [2]),
        ([0, 0, 0, 0], 1, [1, 2, 3]),
        ([1, 0, 2, 3], 1, []),  # another order is unusual but harmless
        ([0, 0, 1, 1], "dealt out in turn", []),
    ):
        states = {}
        for rank, local in enumerate(local_ranks):
            node = rank % 2 if isinstance(nodes, str) else rank * nodes // len(local_ranks)
            states[rank] = RankState(rank, f"node{node}", node, local, contact="ok")
        found = judge_join(RunState(len(local_ranks), states))
        assert [one.who.ranks for one in found] == [(rank,) for rank in named], local_ranks

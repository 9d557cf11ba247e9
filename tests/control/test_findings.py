"""Every cause of a stage's failure gives one finding that the report's schema accepts."""

from dataclasses import replace
from typing import get_args

from control import evidence
from findings_shown import brief, shown
from oddrank.control import culprits, findings
from oddrank.control.culprits import Culprit
from oddrank.control.stages import OddClaim, RankState, RunState, StageRound
from oddrank.control.walk import judge_join
from oddrank.report import Report

CLAIMS = (
    OddClaim(2, False, "rank 2 (node1, pid 9) came although that rank was already here"),
    OddClaim(3, True, "rank 3 (node1, pid 9) says that the world has 8 ranks; the root says 4"),
)


def run(line):
    """Returns a run of four ranks on two nodes."""
    said, listed = evidence.read(line)
    states = evidence.states(RankState, 4, stage="device")
    states |= {rank: replace(states[rank], **facts) for rank, facts in listed.items()}
    master = (said["master"], 29500) if "master" in said else None
    return RunState(4, states, nodes=int(said.get("nodes", 2)), master=master)


def told(line):
    """Returns the findings of a line of the table, without its name."""
    culprit, _, known = line.partition(";")
    cause, _, ranks = culprit.strip().partition(" ")
    said, _ = evidence.read(known)
    named, victims = map(evidence.numbers, (ranks, said.get("victims", "")))
    stage, seen = said.get("in", "device"), run(known)
    odd = CLAIMS if "odd" in said else ()
    round = StageRound(stage, {}, seen.states, "fault", limits=said.get("limits", ""), odd=odd)
    one = Culprit(cause.rstrip("?"), named, stage, victims, certain="?" not in cause)
    return findings.of_round(round, [one], seen)


def check(cases, golden):
    golden("\n\n".join(f"=== {name}\n{shown(found)}" for name, found in cases.items()))


KNOWN = """
0 failed='ValueError: no' waiting;
2 signal=9 exit_code=1 failed='ValueError: no' step=verify orphaned wchan=nfs_wait
  parting='silent for 5012 ms' unreached='node1: no answer';
3 told-by-launcher waiting step=copy
"""
NOBODY = ("all-raised", "all-wait", "no-address", "launcher-gone")
NODE = ("node-lost", "link-cut", "lost-each-other")
# Those of a single rank are rows of triage's table.
ROWS = {
    "raised": "dead", "stopped": "host-stopped", "uninterruptible": "host-stuck",
    "no-progress": "host-stuck",
}  # fmt: skip


def test_every_cause_is_one_finding_with_its_ranks_and_stage(golden):
    # Each other WORLD_SIZE gives a finding of its own.
    cases = {}
    for cause in sorted({*get_args(culprits.Cause)} - {"other-world"}):
        ranks = () if cause in NOBODY else (2, 3) if cause in NODE else (2,)
        victims = "0,1" if 3 in ranks else "0,1,3"
        cases[cause] = told(f"{cause} {','.join(map(str, ranks))}; victims {victims}; {KNOWN}")
        (finding,) = cases[cause]
        row = ROWS.get(cause, cause)
        assert (finding.cause, finding.who.ranks, finding.stage) == (row, ranks, "device")
        assert finding.drains_node == (cause in ("uninterruptible", "node-lost", "link-cut")), cause
    check(cases, golden)


def error():
    try:
        exec(compile("\n{}['x']", "plan.py", "exec"))
    except KeyError as raised:
        return raised
    raise AssertionError


def test_what_is_known_of_ranks_makes_their_sentences(golden):
    rows = dict(row.split(": ", 1) for row in evidence.rows("findings.txt"))
    cases = {name: told(line) for name, line in rows.items()}
    kept_away = [*cases["open files"], *cases["resolver"]]
    assert brief(kept_away) == "unknown open-files: nobody; unknown resolver: nobody"
    cases["LOCAL_RANK"] = judge_join(run("3 local_rank=0"))
    cases["stage failed"] = [findings.stage_failed("device", "its plan", error())]
    cases["part failed"] = [findings.part_failed("the table", error())]
    check(cases, golden)


def behind(cause, *ranks, stage="device"):
    return [Culprit(cause, (rank,), stage, victims=(0, 1)) for rank in ranks]


def test_who_did_not_wait_when_a_signal_ended_the_job_is_where_to_look_and_not_named(golden):
    waiting = run("0 waiting; 2 step=verify; 3 published")
    one = findings.ended_early(behind("no-progress", 2, stage="collectives"), waiting)
    two = findings.ended_early(behind("uninterruptible", 2, 3), run("0 waiting"))
    check({"one": one, "two": two}, golden)
    for (finding,) in (one, two):
        assert (finding.condition, finding.who.ranks) == ("unknown", ())
        ended = Report.of("selftest", {"size": 4}, {}, [finding], complete=False)
        assert (ended.verdict, ended.exit_code()) == ("incomplete", 3)


def test_where_nobody_waited_or_nobody_stood_still_there_is_nothing_to_look_at():
    for suspects, waiters in (
        (behind("no-progress", 2), ""),
        ([Culprit("all-wait", (), "device")], "0-3 waiting"),
        (behind("never-came", 3), "0-1 waiting"),
    ):
        assert findings.ended_early(suspects, run(waiters)) == []


def test_who_has_anothers_local_rank_is_named():
    for local_ranks, nodes, named in (
        ("0123", "0000", ()), ("0101", "0011", ()), ("0113", "0000", (2,)), ("0023", "0000", (1,)),
        ("11", "00", (0,)), ("0111", "0011", (2,)), ("0000", "0000", (1, 2, 3)),
        ("1023", "0000", ()),  # another order is unusual but harmless
        ("0011", "0101", ()),  # dealt out in turn
    ):  # fmt: skip
        states = {
            rank: RankState(rank, f"node{node}", int(node), int(local), contact="ok")
            for rank, (local, node) in enumerate(zip(local_ranks, nodes, strict=True))
        }
        found = judge_join(RunState(len(states), states))
        assert [one.who.ranks for one in found] == [(rank,) for rank in named], local_ranks

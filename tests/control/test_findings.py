"""Every cause of a stage's failure gives one finding that the report's schema accepts."""

from dataclasses import replace

from control import evidence
from findings_shown import brief, shown
from oddrank.control import findings
from oddrank.control.blame import blame
from oddrank.control.stages import OddClaim, RankState, RunState
from oddrank.control.walk import judge_join
from oddrank.report import Report
from oddrank.triage import causes

CLAIMS = (
    OddClaim(2, False, "rank 2 (node1, pid 9) came although that rank was already here"),
    OddClaim(3, True, "rank 3 (node1, pid 9) says that the world has 8 ranks; the root says 4"),
)


def run(line):
    """Returns the evidence of a line, and its run of two nodes."""
    said, _ = evidence.read(line)
    round = evidence.round_of(line)
    if "odd" in said:
        round = replace(round, odd=CLAIMS if round.odd else CLAIMS[:1])
    master = (said["master"], 29500) if "master" in said else None
    world = len(round.states)
    return round, RunState(world, round.states, nodes=int(said.get("nodes", 2)), master=master)


def told(line):
    """Returns the findings of a line of the table, without its name."""
    round, seen = run(line)
    return findings.of_round(round, blame(round), seen)


def check(cases, golden):
    golden("\n\n".join(f"=== {name}\n{shown(found)}" for name, found in cases.items()))


def error():
    try:
        exec(compile("\n{}['x']", "plan.py", "exec"))
    except KeyError as raised:
        return raised
    raise AssertionError


def test_what_is_known_of_ranks_makes_their_sentences(golden):
    rows = dict(row.split(": ", 1) for row in evidence.rows("findings.txt"))
    cases = {name: told(line) for name, line in rows.items()}
    every = {one.cause: one for found in cases.values() for one in found}
    hub = {row.name for row in causes.TABLE.values() if row.about == "hub"}
    assert every.keys() >= {*hub, "dead", "host-stopped", "host-stuck"}
    drains = {name for name in hub if every[name].drains_node}
    assert drains == {"node-lost", "link-cut"}
    kept_away = [*cases["open files"], *cases["resolver"]]
    assert brief(kept_away) == "unknown open-files: nobody; unknown resolver: nobody"
    cases["LOCAL_RANK"] = judge_join(run("3 local_rank=0")[1])
    cases["stage failed"] = [findings.failed("its plan", error(), "device")]
    cases["part failed"] = [findings.failed("the table", error())]
    check(cases, golden)


def early(line):
    """Returns the findings where a signal ended the job while ranks showed what a line says."""
    round, seen = run(f"{line}; deadline")
    return findings.ended_early(blame(round), seen)


def test_who_did_not_wait_when_a_signal_ended_the_job_is_where_to_look_and_not_named(golden):
    one = early("2 works progress=7 step=verify; 3 works progress=9 published")
    two = early("2-3 uninterruptible; 1 works")
    check({"one": one, "two": two}, golden)
    for (finding,) in (one, two):
        assert (finding.condition, finding.who.ranks) == ("unknown", ())
        ended = Report.of("selftest", {"size": 4}, {}, [finding], complete=False)
        assert (ended.verdict, ended.exit_code()) == ("incomplete", 3)


def test_where_nobody_waited_or_nobody_stood_still_there_is_nothing_to_look_at():
    for line in ("0-3 works", "0-3 waiting", "3 never; in join; through 0-2"):
        assert early(line) == []


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

"""NCCL RAS: counts of all ranks become facts, and only counts that stand still tell of a stall."""

import pytest

from oddrank.triage.evidence.nccl_ras import KIND
from oddrank.triage.facts import Counts, Identity, Process, Source, Trouble, World
from oddrank.triage.judges import ras
from oddrank.triage.view import view
from texts import texts
from triage.facts_of import facts_of, of_kind, reader
from triage.told import check

log = reader(KIND)


def judged(facts):
    return ras.judge(view(facts))


def counts_of(facts):
    return of_kind(facts, Counts)


@pytest.mark.needs("samples")
def test_every_example_of_the_guide_is_read(samples):
    facts = facts_of(KIND, samples / "misc" / "nccl_ras_doc_with_sample_outputs.rst")
    by_hash = {(c.communicator, c.dead): c for c in counts_of(facts)}
    mismatch = by_hash["27a079b828ff1a75", ()]
    assert (mismatch.size, mismatch.whole, len(mismatch.counts)) == (32, True, 32)
    assert [r for r, n in mismatch.counts if n == 6649] == [0, 2, 3, 4, 5, 7]
    assert dict(mismatch.members)[7] == Process(7, "172.16.64.210", 483079)
    assert by_hash["cf264af53edbe986", ()].silent == (21,)
    assert dict(by_hash["cf264af53edbe986", (21,)].members)[21].pid == 3487984
    assert World(32, facts[-1].source).size in {f.size for f in of_kind(facts, World)}
    dead = [f for f in of_kind(facts, Trouble) if 1524345 in f.pids]
    assert all(f.kind == "unreachable" and f.fatal for f in dead)
    assert dead


@pytest.mark.needs("samples")
def test_ranks_12_and_13_of_the_real_mismatch_are_ahead_and_not_named(samples):
    facts = facts_of(KIND, samples / "watchdog_logs" / "misc_issue_excerpts.log")
    (counts,) = counts_of(facts)
    assert counts.op == "all_gather"
    assert [r for r, n in counts.counts if n == 641] == [12, 13]
    assert sum(n == 640 for _, n in counts.counts) == 30
    (suspect,) = judged(facts)
    assert (suspect.cause.name, suspect.processes, suspect.certainty) == ("unknown", (), 0)
    assert {p.pid for p in suspect.waiting} == {323032, 323033}


TABLE = """\
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         8         8         8   RUNNING  {error}

Errors
======

{errors}
Warnings
========

"""


def answer(behind=1, least=99, most=100, op="AllReduce", date=""):
    """An answer for 8 ranks: rank 5 (and 6, ...) has launched fewer operations than the others."""
    lines = [f"#0-0 (abc123) MISMATCH\n  Communicator ranks have different {op} operation counts"]
    lines.append(f"  {8 - behind} ranks have launched up to operation {most}")
    said = f"has launched up to operation {least}" if least else "has not launched any operations"
    if behind == 1:
        lines.append(f"  Rank 5 {said} -- GPU 5 managed by process 505 on node 10.0.0.1")
    else:
        lines.append(f"  {behind} ranks have launched up to operation {least}")
        lines += [f"  Rank {5 + i} -- GPU {5 + i} managed by process {505 + i} on node 10.0.0.1"
                  for i in range(behind)]  # fmt: skip
    head = f"{date}\n" if date else ""
    return head + TABLE.format(error="MISMATCH", errors="") + "\n".join(lines) + "\n"


DEAD = texts(__file__)["dead"][1:]
ENDED = [
    f"[2026-01-01 00:00:0{n}] PEER_DEAD: Process {500 + n} on node 10.0.0.1 managing GPU {n}\n"
    for n in range(8)
]
OK = TABLE.format(error="OK", errors="")


def test_only_counts_that_stand_still_tell_of_a_stall(log, golden):
    soon = answer(date="2026-01-01 00:00:01") + answer(date="2026-01-01 00:00:02")
    late = answer(date="Thu Jan  1 00:00:01 UTC 2026") + answer(date="Thu Jan  1 00:01:02 UTC 2026")
    seen = Source("states.json")
    guards = [World(6, seen)]
    for rank in (4, 5):
        guards.append(Identity(Process(rank, "node2", 40 + rank), seen))
        guards.append(
            Trouble("unreachable", "its guard is silent", seen, "node2", pids=(40 + rank,))
        )
    behind, once = (("not-entered-or-inside", (5,), certainty) for certainty in (1, 0))
    check(golden, {
        "behind in two answers": (log.facts(answer() + answer()), behind),
        "two behind in two answers": (log.facts(answer(behind=2), answer(behind=2)),
                                      ("not-entered-or-inside", (5, 6), 1)),
        "one answer": (log.facts(answer()), once),
        "counts that move": (log.facts(answer() + answer(least=199, most=200)),),
        "two answers within a second": (log.facts(soon), once),
        "two answers a minute apart": (log.facts(late), behind),
        "launched nothing": (log.facts(answer(least=0) * 2), behind),
        "a job that is ok": (log.facts(OK * 2),),
        "a process without answer": (log.facts(TABLE.format(error="INCOMPLETE", errors=DEAD)),
                                     ("unreachable", (5,), 1)),
        "the guards of a node are silent": (guards, ("unreachable", (4, 5), 1)),
        "a job that has ended": (log.facts(OK + "".join(ENDED)),),
        "one process that has ended": (log.facts(OK + ENDED[5]), ("unreachable", (None,), 1)),
    }, ras.judge)  # fmt: skip

"""Many collectives in one stage: which ranks wait, which is late, and which is named."""

import json
import signal
import statistics

import pytest

from oddrank.control.blame import blame
from oddrank.control.stages import RankState, StageRound

TIMESTAMPS = {"TEST_TIMESTAMPS": "6"}


def stamps(ranks, stage: str, rank: int) -> tuple[list[int], list[int]]:
    starts, durations, count, dropped = json.loads(ranks.wait_for(f"{stage}-timestamps{rank}"))
    assert (len(starts), len(durations), count, dropped) == (6, 6, 6, 0)
    return starts, durations


@pytest.mark.parametrize(
    ("late", "victim", "number", "cause"),
    [
        (1, 1, 0, "host-stuck"),  # asleep between two collectives
        (2, 1, signal.SIGSTOP, "host-stopped"),  # inside one
        (0, 0, signal.SIGKILL, "dead"),
    ],
    ids=["sleeps", "is stopped", "dies"],
)
def test_a_rank_is_named_and_whether_it_waits_in_a_collective(job, late, victim, number, cause):
    ranks = job(3, inject=f"late:rank={late},stage=second,seconds=60", environ=TIMESTAMPS, stage=8)
    if number:
        ranks.wait_for("second-collective0-1")
        ranks.signal(ranks.workers[victim].pid, number)
    ranks.codes()
    verdict = ranks.verdict()
    states = {rank: RankState(**state) for rank, state in verdict["states"].items()}
    assert [states[rank].waiting for rank in range(3)] == [rank != late for rank in range(3)]
    results = {int(rank): value.encode() for rank, value in verdict["results"].items()}
    (one,) = blame(StageRound("second", results, states, verdict["reason"]))
    named = [process.rank for process in one.processes]
    assert (one.cause.name, named, one.stage) == (cause, [victim], "second")


def late_in(ranks, stage: str) -> list[int]:
    """Returns which rank entered most collectives last, if it was 0.3 s late to each of them.

    To some a rank may come still later that got no core.
    """
    starts = [stamps(ranks, stage, rank)[0] for rank in range(3)]
    last = statistics.mode(times.index(max(times)) for times in zip(*starts, strict=True))
    return [last] if min(gaps(*stamps(ranks, stage, last))) >= 0.3e9 else []


def gaps(starts: list[int], durations: list[int]) -> list[int]:
    """Returns the times between one collective's end and the next one's start."""
    ends = [start + took for start, took in zip(starts, durations, strict=True)]
    return [start - end for start, end in zip(starts[1:], ends, strict=False)]


def test_a_rank_that_is_late_in_a_stage_or_step_enters_every_collective_there_last(job):
    faults = (
        "late:rank=1,stage=second,seconds=0.3",
        "late:rank=2,stage=third,step=1,seconds=0.3",
        "late:rank=0,stage=third,step=2,seconds=60",  # this step has no collectives
    )
    ranks = job(3, inject=";".join(faults), environ=TIMESTAMPS)
    assert set(ranks.codes().values()) == {0}
    for rank in range(3):
        assert min(gaps(*stamps(ranks, "first", rank))) >= 0
    assert late_in(ranks, "second") == [1]
    assert late_in(ranks, "third") == [2]
    for stage, late in (("second", 1), ("third", 2)):  # it has the shortest times
        medians = [statistics.median(stamps(ranks, stage, rank)[1]) for rank in range(3)]
        assert medians.index(min(medians)) == late

"""Many collectives in one stage: which ranks wait, which is late, and which is named."""

import json
import signal
import statistics

import pytest

from oddrank.control.culprits import Culprit, culprits
from oddrank.control.root import RankState, StageRound

TIMESTAMPS = {"TEST_TIMESTAMPS": "6"}


def blamed(ranks) -> list[Culprit]:
    verdict = ranks.verdict()
    states = {rank: RankState(**state) for rank, state in verdict["states"].items()}
    results = {int(rank): value.encode() for rank, value in verdict["results"].items()}
    return culprits(StageRound(verdict["stage"], results, states, verdict["reason"]))


def stamps(ranks, stage: str, rank: int) -> tuple[list[int], list[int]]:
    starts, durations, count, dropped = json.loads(
        ranks.wait_for(ranks.folder / f"{stage}-timestamps{rank}").read_text()
    )
    assert (len(starts), len(durations), count, dropped) == (6, 6, 6, 0)
    return starts, durations


def test_every_collective_has_its_start_and_its_duration(job):
    ranks = job(3, environ=TIMESTAMPS)
    assert set(ranks.codes().values()) == {0}
    for rank in range(3):
        starts, durations = stamps(ranks, "first", rank)
        assert starts == sorted(starts)
        ends = map(sum, zip(starts, durations, strict=True))
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


@pytest.mark.parametrize(
    ("late", "victim", "number", "cause"),
    [
        (1, 1, 0, "no-progress"),  # asleep between two collectives
        (2, 1, signal.SIGSTOP, "stopped"),  # inside one
        (0, 0, signal.SIGKILL, "killed"),
    ],
    ids=["sleeps", "is stopped", "dies"],
)
def test_a_rank_is_named_and_whether_it_waits_in_a_collective(job, late, victim, number, cause):
    ranks = job(3, inject=f"late:rank={late},stage=second,seconds=60", environ=TIMESTAMPS, stage=8)
    if number:
        ranks.wait_for(ranks.folder / "second-collective0-1")
        ranks.signal(ranks.workers[victim].pid, number)
    ranks.codes()
    states = ranks.verdict()["states"]
    assert [states[rank]["waiting"] for rank in range(3)] == [rank != late for rank in range(3)]
    (culprit,) = blamed(ranks)
    assert (culprit.cause, culprit.ranks, culprit.stage) == (cause, (victim,), "second")
    assert culprit.victims == tuple({0, 1, 2} - {victim})


def late_in(ranks, stage: str, seconds: float) -> list[int]:
    """Returns which rank entered most collectives last, if it was so late to each of them.

    To some a rank may come still later that got no core.
    """
    starts = [stamps(ranks, stage, rank)[0] for rank in range(3)]
    last = statistics.mode(times.index(max(times)) for times in zip(*starts, strict=True))
    begins, took = stamps(ranks, stage, last)
    ends = [begin + one for begin, one in zip(begins, took, strict=True)]
    gaps = [begin - end for begin, end in zip(begins[1:], ends, strict=False)]
    return [last] if min(gaps) >= seconds * 1e9 else []


def test_a_late_rank_enters_every_collective_of_its_stage_last_and_has_the_shortest_times(job):
    late = "late:rank=1,stage=second,seconds=0.3"
    ranks = job(3, inject=late, environ=TIMESTAMPS)
    assert set(ranks.codes().values()) == {0}
    assert late_in(ranks, "second", 0.3) == [1]
    medians = [statistics.median(stamps(ranks, "second", rank)[1]) for rank in range(3)]
    assert medians.index(min(medians)) == 1
    later = [statistics.median(stamps(ranks, "third", rank)[1]) for rank in range(3)]
    assert max(later) < max(medians)


def test_a_late_rank_of_one_step_is_late_in_that_step_only(job):
    late = "late:rank=2,stage=second,step=1,seconds=0.3"
    ranks = job(3, inject=late, environ=TIMESTAMPS)
    assert set(ranks.codes().values()) == {0}
    assert late_in(ranks, "second", 0.3) == [2]
    other = job(3, inject="late:rank=2,stage=second,step=2,seconds=60", environ=TIMESTAMPS)
    assert set(other.codes().values()) == {0}

"""Many collectives in one stage: which ranks wait, which is late, and which is named."""

import json
import signal
import statistics

from oddrank.control import inject
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
        ends = [start + took for start, took in zip(starts, durations, strict=True)]
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_a_rank_that_sleeps_between_timestamps_is_named_and_does_not_wait(job):
    inject = "late:rank=1,stage=second,seconds=60"
    ranks = job(3, inject=inject, environ=TIMESTAMPS, stage=5)
    assert set(ranks.codes().values()) == {1}
    states = ranks.verdict()["states"]
    assert [states[rank]["waiting"] for rank in range(3)] == [True, False, True]
    assert states[1]["progress"] == min(state["progress"] for state in states.values())
    (culprit,) = blamed(ranks)
    assert (culprit.cause, culprit.ranks, culprit.stage) == ("no-progress", (1,), "second")
    assert culprit.victims == (0, 2)


def test_a_rank_that_is_stopped_inside_a_collective_waits_and_is_named(job):
    ranks = job(3, inject="late:rank=2,stage=second,seconds=60", environ=TIMESTAMPS)
    ranks.wait_for(ranks.folder / "second-collective0-1")
    ranks.signal(ranks.workers[1].pid, signal.SIGSTOP)
    ranks.assert_gone()
    stopped = ranks.verdict()["states"][1]
    assert (stopped["state"], stopped["waiting"]) == ("stopped", True)
    assert [(culprit.cause, culprit.ranks) for culprit in blamed(ranks)] == [("stopped", (1,))]


def test_a_rank_that_dies_between_timestamps_is_named_and_the_others_waited(job):
    ranks = job(3, inject="late:rank=0,stage=second,seconds=60", environ=TIMESTAMPS)
    ranks.wait_for(ranks.folder / "second-collective0-1")
    ranks.signal(ranks.workers[0].pid, signal.SIGKILL)
    ranks.assert_gone()
    states = ranks.verdict()["states"]
    assert [states[rank]["waiting"] for rank in range(3)] == [False, True, True]
    assert [(culprit.cause, culprit.ranks) for culprit in blamed(ranks)] == [("killed", (0,))]


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


class _Counted:
    """Replaces native timestamps."""

    count = dropped = 0

    def enter(self) -> None:
        self.count += 1

    def leave(self) -> None: ...

    def starts(self) -> bytes:
        return b""

    durations = starts


def delays_of(monkeypatch, fault: str, timestamps: int) -> list[int]:
    """Returns the timestamps that a fault delays."""
    slept: list[int] = []
    monkeypatch.setenv("ODDRANK_TESTING", "1")
    monkeypatch.setenv("ODDRANK_INJECT", fault)
    injector = inject.Injector.of(3)
    injector.enter("s")
    counted = _Counted()
    made = injector.timestamps(counted)
    monkeypatch.setattr("time.sleep", lambda seconds: slept.append(counted.count))
    for _ in range(timestamps):
        made.enter()
        made.leave()
    assert made.count == timestamps
    return slept


def test_jitter_delays_a_share_of_the_timestamps_the_same_ones_in_every_run(monkeypatch):
    fault = "jitter:rank=3,stage=s,seconds=0.01,share=0.2"
    first = delays_of(monkeypatch, fault, 1000)
    assert 150 < len(first) < 250
    assert delays_of(monkeypatch, fault, 1000) == first
    assert delays_of(monkeypatch, fault.replace("0.2", "0"), 100) == []
    assert delays_of(monkeypatch, fault.replace("jitter", "late").replace(",share=0.2", ""), 9) == [
        *range(9)
    ]


def test_timestamps_of_other_stages_and_ranks_are_the_native_ones():
    timestamps = _Counted()
    for text in ("late:rank=3,stage=t", "kill:rank=3,stage=t", "late:rank=3,stage=s,step=x"):
        injector = inject.Injector(inject.parse(text))
        injector.enter("s")
        assert injector.timestamps(timestamps) is timestamps

"""One rank fails in every way: the root learns which rank and how, and everything ends."""

import signal
import time

import pytest

# Kind of fault -> what the root must know of that rank.
SEEN = {
    "kill": "signal 9", "segfault": "signal 11", "abort": "signal 6",
    "exit0": "exited", "stop": "stopped", "raise": "raised",
}  # fmt: skip


@pytest.mark.parametrize("world", [1, 4])
def test_a_healthy_job_completes_and_every_process_leaves_with_0(job, world):
    ranks = job(world)
    assert set(ranks.codes().values()) == {0}
    assert ranks.ended() == ("third", "complete")
    assert ranks.verdict()["results"] == {str(rank): f"third of {rank}" for rank in range(world)}
    assert not ranks.faults()


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("kind", SEEN)
def test_the_root_hears_which_rank_is_broken_and_how(job, kind, rank):
    # The others' results are there before: a death leaves them half a second only.
    last = {"TEST_LAST": f"second {rank}"}
    ranks = job(3, inject=f"{kind}:rank={rank},stage=second,step=1", environ=last)
    codes = ranks.codes()
    others = set(range(3)) - {rank}
    assert ranks.faults() == {rank: SEEN[kind]}
    assert ranks.ended() == ("second", "fault")
    verdict = ranks.verdict()
    assert verdict["states"][rank]["stage"] == "second"
    assert set(verdict["results"]) == set(map(str, others))
    assert {codes[other] for other in others} == {1}


@pytest.mark.parametrize(
    ("kind", "code"), [("kill", -9), ("stop", -9), ("exit0", 0), ("sleep", 1), ("", None)]
)
def test_a_rank_that_breaks_before_it_knows_the_root_or_never_started_never_came(job, kind, code):
    fault = {"inject": f"{kind}:rank=1,stage=join"} if kind else {"never": (1,)}
    ranks = job(3, deadline=12, join=3, environ={"TEST_HERE": "2"}, **fault)
    codes = ranks.codes()
    assert codes.pop(1, None) == code
    assert set(codes.values()) == {1}
    assert ranks.ended() == ("join", "deadline")
    assert ranks.faults() == {1: "never"}


@pytest.mark.parametrize("kind", ["kill", "stop"])
def test_rank_0_breaks_before_it_publishes_the_address(job, kind):
    ranks = job(3, inject=f"{kind}:rank=0,stage=join", environ={"TEST_JOIN": "2"})
    assert set(ranks.codes().values()) == {-signal.SIGKILL, 1}
    assert ranks.faults() == {0: SEEN[kind], 1: "never", 2: "never"}


def test_a_rank_that_goes_on_after_a_stop_is_no_fault(job):
    inject = "sleep:rank=0,stage=second;slow:rank=1,stage=first,seconds=1.5"
    seconds = 2.0
    while seconds > 1.5:  # this process was paused: a stage ends for a stop of 2 s
        ranks = job(2, inject=inject, stage=9)
        ranks.in_stage("first", 0)
        began = time.monotonic()
        ranks.signal(ranks.workers[1].pid, signal.SIGSTOP)
        time.sleep(0.7)  # as long as the fault lasts: no guard misses it
        ranks.signal(ranks.workers[1].pid, signal.SIGCONT)
        seconds = time.monotonic() - began
        ranks.codes()
    assert ranks.ended() == ("second", "deadline")
    assert not ranks.faults()

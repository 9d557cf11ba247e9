"""One rank fails in every way: the root learns which rank and how, and everything ends."""

import signal
import time

import pytest

# Kind of fault -> what the root must know of that rank, and why the stage ended.
SEEN = {
    "kill": ("signal 9", "fault"),
    "segfault": ("signal 11", "fault"),
    "abort": ("signal 6", "fault"),
    "exit0": ("exited", "fault"),
    "stop": ("stopped", "fault"),
    "raise": ("raised", "fault"),
}
SILENT = ("sleep", "gil")


def test_a_healthy_job_completes_and_every_process_leaves_with_0(job):
    ranks = job(4)
    assert set(ranks.codes().values()) == {0}
    verdict = ranks.verdict()
    assert (verdict["stage"], verdict["reason"]) == ("third", "complete")
    assert verdict["results"] == {str(rank): f"third of {rank}" for rank in range(4)}
    assert not ranks.faults()


def test_a_world_of_one_works(job):
    ranks = job(1)
    assert ranks.codes() == {0: 0}
    assert ranks.verdict()["reason"] == "complete"


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("kind", SEEN)
def test_the_root_hears_which_rank_is_broken_and_how(job, kind, rank):
    # The others' results are there before: a death leaves them half a second only.
    last = {"TEST_LAST": f"second {rank}"}
    ranks = job(3, inject=f"{kind}:rank={rank},stage=second,step=1", environ=last)
    codes = ranks.codes()
    verdict = ranks.verdict()
    seen, reason = SEEN[kind]
    assert ranks.faults() == {rank: seen}
    assert (verdict["stage"], verdict["reason"]) == ("second", reason)
    assert verdict["states"][rank]["stage"] == "second"
    assert set(verdict["results"]) == {str(other) for other in range(3) if other != rank}
    assert all(codes[other] == 1 for other in range(3) if other != rank)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("kind", SILENT)
def test_a_rank_that_only_never_comes_shows_at_the_stages_deadline(job, kind, rank):
    ranks = job(3, inject=f"{kind}:rank={rank},stage=second,step=1", stage=5)
    codes = ranks.codes()
    verdict = ranks.verdict()
    assert (verdict["stage"], verdict["reason"]) == ("second", "deadline")
    late = verdict["states"][rank]
    assert (late["state"], late["step"], late["waiting"]) == ("running", "step 1", False)
    assert late["progress"] == min(state["progress"] for state in verdict["states"].values())
    assert set(codes.values()) == {1}  # also the sleeping rank: its watchdog needs no GIL


@pytest.mark.parametrize("kind", ["kill", "stop", "exit0", "sleep"])
def test_a_rank_that_breaks_before_it_knows_the_root(job, kind):
    ranks = job(3, inject=f"{kind}:rank=1,stage=join", deadline=10, join=6)
    ranks.assert_gone()
    assert ranks.verdict()["stage"] == "join"
    assert ranks.faults() == {1: "never"}


@pytest.mark.parametrize(("kind", "seen"), [("kill", "signal 9"), ("stop", "stopped")])
def test_rank_0_breaks_before_it_publishes_the_address(job, kind, seen):
    ranks = job(3, inject=f"{kind}:rank=0,stage=join", environ={"TEST_JOIN": "2"})
    ranks.assert_gone()
    assert ranks.faults() == {0: seen, 1: "never", 2: "never"}


def test_a_rank_that_never_started_is_the_one_that_never_came(job):
    ranks = job(3, never=(1,), deadline=10, join=6)
    assert set(ranks.codes().values()) == {1}
    assert ranks.verdict()["reason"] == "deadline"
    assert ranks.faults() == {1: "never"}


def test_a_slow_rank_is_waited_for(job):
    ranks = job(2, inject="slow:rank=1,stage=second,seconds=0.8")
    assert set(ranks.codes().values()) == {0}


def test_a_rank_that_goes_on_after_a_stop_is_no_fault(job):
    inject = "sleep:rank=0,stage=second;slow:rank=1,stage=first,seconds=1.5"
    seconds = 2.0
    while seconds > 1.5:  # this process was paused: a stage ends for a stop of 2 s
        ranks = job(2, inject=inject, stage=6)
        ranks.in_stage("first", 0)
        began = time.monotonic()
        ranks.signal(ranks.workers[1].pid, signal.SIGSTOP)
        time.sleep(0.7)  # as long as the fault lasts: no guard misses it
        ranks.signal(ranks.workers[1].pid, signal.SIGCONT)
        seconds = time.monotonic() - began
        ranks.assert_gone()
    verdict = ranks.verdict()
    assert (verdict["stage"], verdict["reason"]) == ("second", "deadline")
    assert not ranks.faults()

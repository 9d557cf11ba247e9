"""How jobs end or stand under `oddrank run`, and whom it names for that."""

import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from launchers import LAUNCHERS
from oddrank.run.watch import PATIENCE
from patience import until
from run.watched_job import LONGEST, watched_job
from texts import rows

pytestmark = [pytest.mark.needs("torch"), pytest.mark.job, pytest.mark.timeout(600)]
PROGRAM = Path(__file__).with_name("ends_program.py")
# One rank alone may stand in Python: the others lose it before they can be interrupted.
CTRL_C = r"Ctrl-C(, or SIGINT to rank \d+ .*alone,)? ended the job at "

STALL = 2.0
# Fault -> (odd rank, ranks that are named, cause, sentence).
FAULTS = {fault: row for fault, *row in rows(__file__, "faults")}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_odd_rank_is_named_with_cause_and_place(fault):
    odd, ranks, cause, sentence = FAULTS[fault]
    ranks = [int(rank) for rank in ranks.split()]
    with watched_job(fault, rank=int(odd), stall=STALL, script=PROGRAM, on_stall="collect") as job:
        until(lambda: job.history, normal=LONGEST)
        if job.history[0]["event"] == "death":
            job.ends()
            assert job.triaged_here()["summary"] == job.report["summary"]
        offline = job.triaged()
        report, history = job.report, job.history
    finding, *others = report["findings"]
    assert not others, [one["what"] for one in report["findings"]]
    assert finding["cause"] == cause, report["summary"]
    if fault in ("ticks", "in_a_thread"):  # so the thread that logs was no work
        assert history[0]["seconds"] < PATIENCE * STALL
    if fault == "all_raise":  # torchrun may end some of them before they raise
        assert set(finding["who"]["ranks"]) <= set(ranks)
    else:
        # The first sentence on a death comes before other ends are known, and may be corrected.
        others = [row["summary"] for row in history if row["event"] != "death"]
        assert set(others) <= {report["summary"]}, history
        assert finding["who"]["ranks"] == ranks, report["summary"]
    assert re.fullmatch(sentence, report["summary"]), report["summary"]
    assert offline["summary"] == report["summary"]


@pytest.mark.parametrize("fault", ["works_after_all", "sampled_works", "thread_works"])
def test_a_rank_that_works_on_while_others_wait_or_have_ended_is_held_against_nobody(fault):
    with watched_job(fault, rank=1, steps=60, stall=2, script=PROGRAM) as job:
        assert job.ends() == [0]
        assert (job.report["verdict"], job.said) == ("healthy", [])


@pytest.mark.parametrize(
    ("fault", "named"),
    [("in_threads", []), ("raise_in_threads", [0, 1, 2, 3]), ("raises_in_threads", [2])],
)
def test_ranks_that_are_ended_by_force_are_told_unless_all_have_trained(fault, named):
    with watched_job(
        fault, steps=40, script=PROGRAM, launcher="env", program=(), options=()
    ) as job:
        assert job.ends() == [1] * 4
        assert bool(job.said) == bool(named)
        assert sorted({r for f in job.report["findings"] for r in f["who"]["ranks"]}) == named
        if fault == "raises_in_threads":
            assert re.search(r" its launcher caught at raises \(ends_.*:\d+\)", job.said[-1])


def test_a_rank_that_was_never_started_is_named():
    def without_rank_1(order):
        return LAUNCHERS["env"](replace(order, absent=[1]))

    with watched_job(
        "none", ranks=3, stall=1, script=PROGRAM, launcher=without_rank_1, fresh=True
    ) as job:
        (finding,) = job.waits_for("stall")["findings"][:1]
        assert (finding["who"]["ranks"], finding["cause"]) == ([1], "never-joined")
        assert "ranks 0, 2 wait" in finding["what"]


def test_both_calls_are_told_if_those_of_two_ranks_differ_and_gloo_aborts_one():
    with watched_job("sizes", 1, ranks=2, stall=2, script=PROGRAM) as job:
        assert job.ends() == [1]
        (finding,) = job.report["findings"]
        assert (finding["who"]["ranks"], finding["cause"]) == ([1], "mismatch")
        place = r"at step \(ends_program.py:\d+\)"
        assert re.fullmatch(
            rf"rank 1 issued all_reduce with sizes 12345 {place} as call 21 of .*;"
            rf" rank 0 issued all_reduce with sizes 8 {place}", job.report["summary"],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "value", "named", "what"),
    [
        ("WORLD_SIZE", "4", [2], r"rank 2 \(\w+\) has WORLD_SIZE=4, and ranks 0-1 WORLD_SIZE=3"),
        ("RANK", "1", [1], r"rank 1 \(\w+\) has 2 processes: .*, and none has RANK 2"),
    ],
)
def test_a_rank_that_was_started_otherwise_is_named(variable, value, named, what):
    def otherwise(order):
        *plan, (node, line, env) = LAUNCHERS["env"](order)
        return [*plan, (node, line, {**env, variable: value})]

    with watched_job(
        "none", ranks=3, stall=1, script=PROGRAM, launcher=otherwise, on_stall="collect"
    ) as job:
        until(lambda: job.history, normal=LONGEST)
        offline, report = job.triaged(), job.report
        (finding,) = report["findings"]
        assert (finding["who"]["ranks"], finding["cause"]) == (named, "settings")
        assert re.fullmatch(what, report["summary"])
        assert offline["summary"] == report["summary"]


def test_a_rank_that_got_sigterm_from_a_stranger_is_named_and_evidence_is_saved():
    with watched_job("none", stall=2, script=PROGRAM, on_stall="collect") as job:
        until((job.folder / "fault").exists, normal=LONGEST)
        # torchrun's own SIGTERM to the others comes clearly later: two that come within moments may
        # both be a stranger's.
        job.launchers[0].send_signal(signal.SIGSTOP)
        job.signal(2, signal.SIGTERM)
        job.waits_for("death")
        job.launchers[0].send_signal(signal.SIGCONT)
        assert job.ends() == [1]
        offline = job.triaged()
        finding, *others = job.report["findings"]
        assert not others, job.report
        assert (finding["who"]["ranks"], finding["cause"]) == ([2], "dead"), job.report
        for found in (finding, offline["findings"][0]):
            assert (found["who"]["ranks"], found["cause"]) == ([2], "dead"), offline
            assert "was killed with SIGTERM " in found["what"], found
        # Until the others have ended it may be a Ctrl-C.
        assert job.said[-1] == f"oddrank: {job.report['summary']}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_rank_that_was_named_stays_named_if_somebody_then_ends_the_job(number):
    with watched_job("waits", stall=2, script=PROGRAM) as job:
        said = job.waits_for("stall")["summary"]
        for rank in range(4):
            job.signal(rank, number)
        assert job.ends() != [0]
        assert [job.report["summary"], *job.said] == [said] + [f"oddrank: {said}"] * 2


@pytest.mark.parametrize("whom", ["launcher", "ranks"])
def test_ctrl_c_names_nobody(whom):
    with watched_job("none", stall=60, script=PROGRAM) as job:  # a busy machine makes no stall
        until((job.folder / "fault").exists, normal=LONGEST)
        pids = (
            [job.launchers[0].pid] if whom == "launcher" else [job.pid(rank) for rank in range(4)]
        )
        for pid in pids:
            os.kill(pid, signal.SIGINT)
        assert job.ends() != [0]
        report = job.report
        assert [finding["who"]["ranks"] for finding in report["findings"]] in ([], [[]])
        assert re.match(CTRL_C, report["summary"])
        assert job.said == []

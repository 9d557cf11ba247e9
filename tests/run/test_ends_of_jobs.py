"""How jobs end or stand under `oddrank run`, and whom it names for that."""

import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from launchers import LAUNCHERS
from patience import until
from run.watched_job import LONGEST, watched_job

pytestmark = [pytest.mark.needs("torch"), pytest.mark.job, pytest.mark.timeout(600)]
PROGRAM = Path(__file__).with_name("ends_program.py")
WAIT = r" wait for it in all_reduce 21 of .*"

# Fault -> (odd rank, ranks that are named, cause, sentence).
FAULTS = {
    "raises": (2, [2], "dead", rf"rank 2 \(\w+\) raised ValueError: bad label 77 in shard 3, at"
               rf" raises \(ends_program.py:\d+\), step 20; ranks 0-1, 3{WAIT}"),
    "all_raise": (2, [0, 1, 2, 3], "dead", r"ranks? .* \(\w+\) raised ValueError: bad .*"),
    "exit_0": (2, [2], "finished", r"rank 2 \(\w+\) ended with exit code 0 after step 20, at .*"
               " while ranks 0-1, 3 wait in all_reduce 21 of .*: uneven batches\\?"),
    "exit_0_at_once": (2, [2], "finished", r"rank 2 \(\w+\) ended with exit code 0 after step 20,"
                       r" at <lambda> \(ends_program.py:\d+\), while .*"),
    "exit_3": (2, [2], "dead", r"rank 2 \(\w+\) exited with code 3 at .*, step 20;.*"),
    "waits": (2, [2], "host-stuck", rf".* stuck in wait_here \(ends_program.py:\d+\);.*{WAIT}"),
    "named_like_data": (2, [2], "host-stuck", r".* is stuck in \S*next_batch \(ends_program.*"),
    "two_locks": (2, [2], "deadlock", r".*: its threads wait for each other's locks, in two_locks"
                  r" \(ends_program.py:\d+\) and \S*takes_the_other \(ends_program.py:\d+\);.*"),
    "locked_file": (2, [2], "host-stuck", r".* the lock of a file in locked_file .*"),
    "left_lock": (2, [0, 1, 2, 3], "host-stuck", r"ranks 0-3 \(\w+\) are stuck: wait for the lock"
                  r" of a file in left_lock .*"),
    "starts_a_program": (2, [2], "host-stuck", r".* waits for a child process in starts_a_pro.*"),
    "worker_sleeps": (2, [2], "host-stuck", r".* stuck: waits for its DataLoader worker, which"
                      r" stands in Samples.__getitem__ \(ends_program\S+; .* all_reduce 27.*"),
    "worker_is_killed": (2, [2], "dead", r"rank 2 \(\w+\)'s DataLoader worker pid \d+ was killed"
                         r" with SIGKILL, step .*"),
    "worker_raises": (2, [2], "dead", r"rank 2 \(\w+\) raised ValueError: bad sample 104 \(in"
                      r" DataLoader worker process 0\), at .*"),
    "two_threads": (2, [0, 1, 2, 3], "shared-group", r"ranks 0-3 \(\w+\) use default_pg .* from"
                    r" several threads at once \(MainThread in \w+ \(ends_program.py:\d+\), saver"
                    r" in saves_meanwhile \(ends_program.py:\d+\)\): .*"),
    "keeps_the_gil": (2, [2], "host-stuck", r".* in keeps_the_gil \(ends_program.py:\d+\);.*"),
    "same_function": (2, [2], "host-stuck", r".* is stuck in step \(ends_program.py:\d+\);.*"),
    "sizes": (2, [2], "mismatch", r"rank 2 issued all_reduce with sizes 12345 as call 21 of .*"),
    "one_more": (1, [1], "finished", r"rank 1 \(\w+\) waits in all_reduce 21 of .*, which ranks"
                 " 0, 2-3 never make: they have finished"),
    "sleeps_after_all": (1, [1], "host-stuck", r"rank 1 \(\w+\) is stuck in main .*; ranks 0, 2-3"
                         " have finished"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_odd_rank_is_named_with_cause_and_place(fault):
    odd, ranks, cause, sentence = FAULTS[fault]
    with watched_job(fault, rank=odd, stall=2, script=PROGRAM) as job:
        until(lambda: job.history, normal=LONGEST)
        if job.history[0]["event"] == "death":
            job.ends()
        report, history = job.report, job.history
    finding, *others = report["findings"]
    assert not others, [one["what"] for one in report["findings"]]
    assert finding["cause"] == cause, report["summary"]
    if fault == "all_raise":  # torchrun may end some of them before they raise
        assert set(finding["who"]["ranks"]) <= set(ranks)
    else:
        # The first sentence on a death comes before other ends are known, and may be corrected.
        others = [row["summary"] for row in history if row["event"] != "death"]
        assert set(others) <= {report["summary"]}, history
        assert finding["who"]["ranks"] == ranks, report["summary"]
    assert re.fullmatch(sentence, report["summary"]), report["summary"]


def test_a_rank_that_works_on_after_all_others_is_held_against_nobody():
    with watched_job("works_after_all", rank=1, stall=2, script=PROGRAM) as job:
        assert job.ends() == [0]
        assert (job.report["verdict"], job.said) == ("healthy", [])


def test_a_rank_that_was_never_started_is_named():
    def without_rank_1(order):
        return LAUNCHERS["env"](replace(order, absent=[1]))

    with watched_job(
        "none", ranks=3, stall=1, script=PROGRAM, launcher=without_rank_1, fresh=True
    ) as job:
        (finding,) = job.waits_for("stall")["findings"][:1]
        assert (finding["who"]["ranks"], finding["cause"]) == ([1], "never-joined")
        assert "ranks 0, 2 wait" in finding["what"]


def test_a_rank_that_got_sigterm_from_a_stranger_is_named():
    # So that torchrun's own SIGTERM to the others comes clearly later: two that come within
    # moments may both be a stranger's.
    late = ("--monitor-interval", "2")
    with watched_job("none", stall=2, script=PROGRAM, of_launcher=late) as job:
        until((job.folder / "fault").exists, normal=LONGEST)
        job.signal(2, signal.SIGTERM)
        assert job.ends() == [1]
        (finding,) = job.report["findings"]
        assert (finding["who"]["ranks"], finding["cause"]) == ([2], "dead"), job.report
        assert "was killed with SIGTERM at " in finding["what"]


@pytest.mark.parametrize("whom", ["launcher", "ranks"])
def test_ctrl_c_names_nobody(whom):
    with watched_job("none", stall=2, script=PROGRAM) as job:
        until((job.folder / "fault").exists, normal=LONGEST)
        pids = (
            [job.launchers[0].pid] if whom == "launcher" else [job.pid(rank) for rank in range(4)]
        )
        for pid in pids:
            os.kill(pid, signal.SIGINT)
        assert job.ends() != [0]
        report = job.report
        assert [finding["who"]["ranks"] for finding in report["findings"]] in ([], [[]])
        assert report["summary"].startswith("Ctrl-C ended the job at ")
        assert job.said == []

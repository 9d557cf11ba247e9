"""A sweep that is interrupted."""

import os
import signal
import sys
from subprocess import PIPE

import pytest

import forked
from job import job


@pytest.mark.needs("torch")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_goes_well_ends_when_it_is_told_to(number):
    line = "-m oddrank bench run --sizes 8:64M --precision 0.01% --deadline 60"
    sweep = forked.popen([sys.executable, *line.split()], stdout=PIPE, stderr=PIPE, text=True)
    try:
        assert sweep.stderr.readline().startswith("join")
        sweep.send_signal(number)
        said, _ = sweep.communicate()
    finally:
        sweep.kill()
    assert sweep.returncode == 3
    assert f"bench: incomplete\n{number.name} (from process" in said
    assert f"(from process {os.getpid()} on " in said


@pytest.mark.needs("torch")
def test_of_ranks_that_come_further_nobody_is_pointed_at():
    verdict = job(
        2, command=("bench", "run", "--sizes", "8:64K", "--precision", "0.01%"), deadline=60,
        after="busbw GB/s", act=lambda live: live.launchers[0].send_signal(signal.SIGINT),
    )  # fmt: skip
    assert verdict.report is not None, str(verdict)
    assert (verdict.report["verdict"], verdict.report["findings"]) == ("incomplete", [])
    assert verdict.report["summary"].startswith(("SIGINT", "SIGTERM")), str(verdict)

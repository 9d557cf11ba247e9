"""An interrupted healthy job ends at once and is incomplete, not healthy."""

import os
import signal
import sys
from subprocess import PIPE, Popen

import pytest

from job import job

pytestmark = pytest.mark.needs("torch")
SWEEP = ["bench", "run", "--sizes", "8:64M", "--precision", "0.01%", "--deadline", "60"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_goes_well_ends_when_it_is_told_to(number):
    command = [sys.executable, "-m", "oddrank", *SWEEP]
    with Popen(command, stdout=PIPE, stderr=PIPE, text=True) as sweep:
        try:
            assert sweep.stderr is not None
            assert sweep.stderr.readline().startswith("join")
            sweep.send_signal(number)
            said, _ = sweep.communicate(timeout=70)
        finally:
            sweep.kill()
    assert sweep.returncode == 3
    assert f"bench: incomplete\n{number.name} (from process" in said
    assert f"(from process {os.getpid()} on " in said


def test_of_ranks_that_come_further_nobody_is_pointed_at():
    verdict = job(
        2,
        command=("bench", "run", "--sizes", "8:64K", "--precision", "0.01%"),
        deadline=60,
        after="busbw GB/s",
        act=lambda live: live.launchers[0].send_signal(signal.SIGINT),
    )
    assert verdict.report is not None, str(verdict)
    assert (verdict.report["verdict"], verdict.report["findings"]) == ("incomplete", [])
    assert verdict.report["summary"].startswith(("SIGINT", "SIGTERM")), str(verdict)

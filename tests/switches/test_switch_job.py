"""Four real gloo ranks of uneven speed obey files and signals after the same step."""

import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import forked
from oddrank.switches import order_file
from oddrank.switches import switch as switch_module
from patience import PATIENCE, until
from processes import Marked

pytestmark = [pytest.mark.job, pytest.mark.needs("torch"), pytest.mark.timeout(600)]
JOB = Path(__file__).with_name("switch_job.py")
RANKS = 4
LONGEST = 240.0


@contextmanager
def job(folder, ranks=RANKS):
    mark = Marked()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    with (folder / "out").open("wb") as output:
        torchrun = forked.popen(
            [*launch, "--nproc-per-node", str(ranks), str(JOB), str(folder)],
            env={**os.environ, **mark.environ, "OMP_NUM_THREADS": "1"},
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield torchrun
    finally:
        mark.kill_all()
        torchrun.wait(PATIENCE.limit)


def said(folder, rank):
    file = folder / f"rank{rank}"
    return file.read_text().splitlines() if file.exists() else []


def test_files_and_signals_are_obeyed_by_all_ranks_after_the_same_step(tmp_path):
    switch = tmp_path / "switch"

    def write(word):
        order_file.write(switch, word, "alice@login1")

    def state():
        found = order_file.reports(switch)
        return found[0].state if found else ""

    def lines(count):
        return lambda: all(len(said(tmp_path, rank)) == count for rank in range(RANKS))

    def waits(true):
        until(lambda: true() or torchrun.poll() is not None, LONGEST)
        assert true(), (tmp_path / "out").read_text()[-3000:]

    with job(tmp_path) as torchrun:
        waits(lines(1))
        pids = [int(said(tmp_path, rank)[0]) for rank in range(RANKS)]
        write("save")
        waits(lines(2))
        time.sleep(switch_module._SAME_SECONDS)  # until then a signal is about that save
        os.kill(pids[2], signal.SIGUSR1)
        waits(lines(3))
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        assert torchrun.wait(PATIENCE.seconds(LONGEST)) == 0, (tmp_path / "out").read_text()[-3000:]
    logs = [said(tmp_path, rank)[1:] for rank in range(RANKS)]
    assert [line.split()[1] for line in logs[0]] == ["save", "save", "kill"]
    assert all(log == logs[0] for log in logs)
    for line in logs[0]:
        step, _, total = line.split()
        assert float(total) == RANKS * int(step)
    assert state() == "has ended"


def test_all_ranks_of_a_job_that_starts_under_a_kill_end_with_the_same_line(tmp_path):
    order_file.prepare(tmp_path / "switch")
    order_file.write(tmp_path / "switch", "kill", "alice@login1")
    with job(tmp_path, ranks=2) as torchrun:
        assert torchrun.wait(PATIENCE.seconds(LONGEST)) == 1
    text = (tmp_path / "out").read_text()
    assert text.count("RefusedError: the switch") == 2
    assert "says kill (alice@login1" in text

"""`oddrank top` shows the ranks of this host live, from their records."""

import os
import re
import signal
import subprocess
import sys
import time
import types
from dataclasses import replace
from pathlib import Path

import pytest

from oddrank.pauses import Pause
from oddrank.run.top import look as top
from oddrank.run.top.look import COLUMNS, Gpu, Look
from oddrank.trace import ranks
from patience import until

LOOP = """
import sys, time
import oddrank
oddrank.arm()
def train():
    for i in range(10**9):
        oddrank.step(i)
        time.sleep(float(sys.argv[1]))
train()
"""


@pytest.fixture
def job(tmp_path):
    """Two ranks that step at different rates."""
    script = tmp_path / "train.py"
    script.write_text(LOOP, encoding="utf-8")
    begun = [
        subprocess.Popen(
            [sys.executable, script, pause],
            env={
                **os.environ, "ODDRANK_DIR": str(tmp_path / "records"), "RANK": str(rank),
                "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
            },
        )
        for rank, pause in enumerate(("0.01", "0.2"))
    ]  # fmt: skip
    files = tmp_path / "records"

    def step() -> bool:
        found = ranks.read(sorted(files.rglob("rank*.trace")))[0]
        steps = {one.rank: one.step or 0 for one in found}
        # Whoever began first: rank 0 is ahead, also if it gets no core for ten seconds.
        return len(steps) == len(begun) and min(steps.values()) > 1 and steps[0] > steps[1] + 50

    try:
        until(step)
        yield files, begun
    finally:
        for process in begun:
            process.kill()
            process.wait()


def shown(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "oddrank", "top", *arguments],
        env={**os.environ, "ODDRANK_DIR": str(folder), "COLUMNS": "250"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def cells_in(text):
    """Returns the cells of each rank."""
    rows = [line.split() for line in text.splitlines()]
    return {int(row[0]): row for row in rows if row and row[0].isdigit()}


def are_fast_and_slow(text):
    """Returns whether rank 0 makes many more steps a second than rank 1."""
    cells = cells_in(text)
    return float(cells[0][3]) > 2 * float(cells[1][3]) > 0


def test_each_rank_has_a_row_with_its_step_its_rate_and_its_line(job):
    folder, begun = job
    ended = shown(folder, "--once", "--every", "2")
    end = time.monotonic() + 60
    while not are_fast_and_slow(ended.stdout) and time.monotonic() < end:  # one had no core
        ended = shown(folder, "--once", "--every", "2")
    assert (ended.returncode, ended.stderr) == (0, "")
    title, head, *lines = ended.stdout.splitlines()
    assert "ranks 0-1 here, 2 alive" in title
    assert "/dev/shm" in title
    assert head.split()[:3] == ["rank", "pid", "step"]
    cells = cells_in(ended.stdout)
    assert {int(cells[rank][1]) for rank in (0, 1)} == {process.pid for process in begun}
    assert are_fast_and_slow(ended.stdout), ended.stdout
    assert re.search(r"train\.py:\d+ train", ended.stdout)
    # The one with the fewest steps comes first.
    assert [int(line.split()[0]) for line in lines if line.split()[0].isdigit()] == [1, 0]


def test_a_rank_that_died_is_called_dead(job):
    folder, begun = job
    begun[1].send_signal(signal.SIGKILL)
    begun[1].wait()
    ended = shown(folder, "--once", "--every", "0.5")
    assert "2 ranks" in ended.stdout or "ranks 0-1 here, 1 alive" in ended.stdout
    assert re.search(rf"\b{begun[1].pid}\b.*\bdead\b", ended.stdout)


def test_without_a_job_it_says_what_to_type(tmp_path):
    ended = shown(tmp_path, "--once")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1


def nvml(count, pids):
    """Stands in for nvidia-ml-py, with `count` GPUs, of which the second does not answer."""

    class NVMLError(Exception):
        pass

    def handle(index):
        if index == 1:
            raise NVMLError("lost")
        return index

    return types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetUtilizationRates=lambda device: types.SimpleNamespace(gpu=90 + device),
        nvmlDeviceGetComputeRunningProcesses=lambda device: [
            types.SimpleNamespace(pid=pids[device], usedGpuMemory=(device or None) and 5 << 20)
        ],
    )


def test_gpus_are_those_that_nvml_says_a_process_uses(monkeypatch, job):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(3, [11, 12, 13]))
    assert top._gpus() == {11: Gpu(0, 90, None), 13: Gpu(2, 92, 5 << 20)}
    folder, _ = job
    before = top.look(sorted(Path(folder).rglob("rank*.trace")))
    pid = before.ranks[0].pid
    now = replace(before, time=before.time + 1, gpus={pid: Gpu(4, 97, 5 << 20)})
    made = {row[1]: dict(zip(COLUMNS, row, strict=True)) for row in top.rows(before, now)}
    assert (made[pid]["GPU %"], made[pid]["GPU MiB"]) == (97, 5)
    others = [row for of, row in made.items() if of != pid]
    assert [row["GPU %"] for row in others] == [None]


def test_a_rank_that_began_between_two_looks_has_no_rate_yet(job):
    folder, _ = job
    now = top.look(sorted(Path(folder).rglob("rank*.trace")))
    (first, _) = top.rows(Look(now.time - 1, ()), now)
    assert dict(zip(COLUMNS, first, strict=True))["steps/s"] is None


def test_a_rank_that_waits_on_purpose_says_so_and_not_its_call(job):
    folder, _ = job
    now = top.look(sorted(Path(folder).rglob("rank*.trace")))
    pause = Pause("breakpoint", 3600.0, "train.py:41", since=now.time - 5)
    paused = replace(now, ranks=tuple(replace(one, pause=pause) for one in now.ranks))
    for row in top.rows(now, paused):
        said = dict(zip(COLUMNS, row, strict=True))["in"]
        assert said == "stands in a breakpoint (train.py:41), on purpose, for 5.0 s"

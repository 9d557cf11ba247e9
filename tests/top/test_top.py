"""`oddrank top` shows the ranks of this host live, from their records."""

import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gloo_ranks import ranks as ranks_of
from oddrank.pauses import Pause
from oddrank.top import command as top
from oddrank.top.command import COLUMNS, Look
from oddrank.trace import ranks
from patience import until
from processes import typed
from texts import texts

LOOP = texts(__file__)["loop"]


@pytest.fixture
def job(tmp_path):
    """Two ranks that step at different rates."""
    script, files = tmp_path / "train.py", tmp_path / "records"
    script.write_text(LOOP, encoding="utf-8")

    def step() -> bool:
        found = ranks.read(sorted(files.rglob("rank*.trace")))[0]
        steps = {one.rank: one.step or 0 for one in found}
        # Whoever began first: rank 0 is ahead, also if it gets no core for ten seconds.
        return len(steps) == 2 and min(steps.values()) > 1 and steps[0] > steps[1] + 50

    with ranks_of([sys.executable, script], tmp_path, 2, fresh=True) as begun:
        until(step)
        yield files, begun


def shown(folder, *arguments):
    return typed("top", *arguments, ODDRANK_DIR=str(folder), COLUMNS="250")


def cells_in(text):
    """Returns the cells of each rank, in the order of the rows."""
    rows = [line.split() for line in text.splitlines()]
    return {int(row[0]): row for row in rows if row and row[0].isdigit()}


def test_each_rank_has_a_row_with_its_step_its_rate_and_its_line_or_is_called_dead(job):
    folder, begun = job

    def fast_and_slow():
        """Shows it; returns it once rank 0 makes more steps a second, as it does with a core."""
        ended = shown(folder, "--once", "--every", "2")
        assert (ended.returncode, ended.stderr) == (0, "")
        rates = {rank: float(row[3]) for rank, row in cells_in(ended.stdout).items()}
        return rates[0] > 2 * rates[1] > 0 and ended.stdout

    text = until(fast_and_slow)
    title, head, *_ = text.splitlines()
    assert "ranks 0-1 here, 2 alive" in title
    assert "/dev/shm" in title
    assert head.split()[:3] == ["rank", "pid", "step"]
    # The one with the fewest steps comes first.
    pids = [(rank, int(row[1])) for rank, row in cells_in(text).items()]
    assert pids == [(1, begun[1].pid), (0, begun[0].pid)]
    assert re.search(r"train \(train\.py:\d+\)", text)
    begun[1].send_signal(signal.SIGKILL)
    begun[1].wait()
    ended = shown(folder, "--once", "--every", "0.5")
    assert "ranks 0-1 here, 1 alive" in ended.stdout
    assert "dead" in cells_in(ended.stdout)[1]


def test_without_a_job_it_says_what_to_type(tmp_path):
    ended = shown(tmp_path, "--once")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    file = tmp_path / "rank0-1-1.trace"
    file.touch()
    ended = shown(tmp_path, "--once", str(file))
    assert ended.stderr.endswith(f"oddrank trace where {file} says why\n")


def look_at(folder):
    return top.look(sorted(Path(folder).rglob("rank*.trace")))


def cells(before, now):
    """Returns the cells of each process."""
    return {row[1]: dict(zip(COLUMNS, row, strict=True)) for row in top.rows(before, now)}


def test_a_rank_that_has_just_begun_has_no_rate_and_one_that_waits_on_purpose_says_so(job):
    now = look_at(job[0])
    assert [row["steps/s"] for row in cells(Look(now.time - 1, ()), now).values()] == [None] * 2
    pause = Pause("breakpoint", 3600.0, "train.py:41", since=now.time - 5)
    paused = replace(now, ranks=tuple(replace(one, pause=pause) for one in now.ranks))
    said = [row["in"] for row in cells(now, paused).values()]
    assert said == ["stands in a breakpoint (train.py:41), on purpose, for 5.0 s"] * 2

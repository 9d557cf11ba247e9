"""Records of collectives of ranks that hang, die, fork, end or never pause."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oddrank import _native
from oddrank.trace import collectives
from oddrank.trace.collectives import Collective
from patience import until

pytestmark = [pytest.mark.needs("torch-build"), pytest.mark.timeout(300)]
JOB = Path(__file__).with_name("collective_faults_job.py")


@contextmanager
def ranks(program: str, folder: Path, world: int = 1) -> Iterator[list[subprocess.Popen[str]]]:
    _native.torch()  # reports a _torch that does not fit, once
    started = [
        subprocess.Popen(
            [sys.executable, JOB, program, str(rank), str(world), folder],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        yield started
    finally:
        for rank in started:
            rank.kill()
            rank.communicate()


def line_of(rank: subprocess.Popen[str]) -> str:
    assert rank.stdout is not None
    return rank.stdout.readline().strip()


def brief(records: list[Collective]) -> list[tuple[str, int, str]]:
    return [(r.op, r.bytes, r.state) for r in records]


def untimed(records: list[Collective]) -> list[Collective]:
    """Drops times: each read converts ticks with clocks read anew."""
    return [r._replace(begin_ns=None, end_ns=None) for r in records]


def test_a_killed_rank_that_hung_in_an_all_reduce_left_it_open_in_its_file(tmp_path: Path):
    def opened(path: str) -> list[tuple[int, bool]]:
        return [(r.bytes, r.seq is not None) for r in collectives.read(path) if r.state == "open"]

    with ranks("one_stays_away", tmp_path, world=2) as (hung, away):
        path, other = line_of(hung), line_of(away)
        # A call returns before its end is recorded.
        until(lambda: (opened(path), opened(other)) == ([(8000, True)], []))
        alive = collectives.read(path)
        hung.kill()
        hung.wait()
        assert untimed(collectives.read(path)) == untimed(alive)
        *before, last = alive
        assert (last.op, last.bytes, last.state, last.end_ns) == ("allreduce_", 8000, "open", None)
        assert last.thread == hung.pid
        assert brief(before[-2:]) == [("allreduce_", 20, "ended")] * 2
        assert {r.group for r in before[-2:]} == {last.group}
        assert last.seq == before[-1].seq + 1
        # The absent rank has no open collective and never issued this one.
        came_to = collectives.read(other)[-1]
        assert (came_to.group, came_to.seq, came_to.state) == (last.group, last.seq - 1, "ended")


def test_a_hundred_thousand_all_reduces_leave_none_open(tmp_path: Path):
    with ranks("hundred_thousand", tmp_path) as (rank,):
        path = line_of(rank)
        assert rank.wait(240) == 0
        records = collectives.read(path)
    assert {r.state for r in records} == {"ended"}
    numbers = [r.seq for r in records if r.seq is not None]
    assert len(numbers) > 1000
    # Parts of the older ones are overwritten: a call whose end came late stands there alone.
    assert numbers[-1000:] == list(range(numbers[-1] - 999, numbers[-1] + 1))
    assert len(set(numbers)) == len(numbers)
    assert numbers[-1] - 100_000 in (-1, 0, 1, 2)  # init_process_group may issue collectives


def test_a_forked_child_records_its_own_collectives_in_its_own_file(tmp_path: Path):
    with ranks("fork", tmp_path) as (rank,):
        path = Path(line_of(rank))
        assert rank.wait(60) == 0
    (child,) = set(path.parent.iterdir()) - {path}
    assert brief(collectives.read(child))[-2:] == [
        ("allreduce_", 12, "ended"),
        ("barrier", 0, "ended"),
    ]
    assert brief(collectives.read(path))[-1:] == [("allreduce_", 28, "ended")]
    assert ("allreduce_", 12, "ended") not in brief(collectives.read(path))


def test_threads_may_issue_while_the_process_ends(tmp_path: Path):
    with ranks("issued_at_exit", tmp_path) as (rank,):
        path = line_of(rank)
        rank.wait(60)
    # gloo may end such a process with a signal; the record is still whole.
    assert len(collectives.read(path)) > 10


def test_while_it_is_not_armed_a_process_records_none(tmp_path: Path):
    with ranks("armed_again", tmp_path) as (rank,):
        path, again = line_of(rank), line_of(rank)
        assert rank.wait(60) == 0
    assert again == path
    assert brief(collectives.read(path)) == [
        ("allreduce_", 4, "ended"),
        ("allreduce_", 12, "ended"),
    ]


def test_what_is_no_sink_is_refused():
    with pytest.raises(ValueError, match="PyCapsule"):
        _native.torch().start_collectives(object())

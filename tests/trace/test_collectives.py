"""Records of real gloo ranks have exactly the collectives that they issued, also if ranks fail."""

import json
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

import pytest

import gloo_ranks
from oddrank import _native
from oddrank.trace import collectives
from oddrank.trace.collectives import Collective
from patience import PATIENCE, until

pytestmark = [pytest.mark.needs("torch-build"), pytest.mark.timeout(300)]
JOB = Path(__file__).with_name("collectives_job.py")


def ranks(folder: Path, world: int, *fault: str) -> "AbstractContextManager[list[Popen[str]]]":
    _native.torch()  # reports a _torch that does not fit, once
    return gloo_ranks.ranks(
        [sys.executable, JOB, folder, *fault], folder, world,
        # Room for all scenarios: a record of the default size keeps only a thousand collectives.
        ODDRANK_TRACE_MB="4" if fault else "16",
        # The job imports helpers of tests.
        PYTHONPATH=os.pathsep.join([str(JOB.parents[1]), os.environ.get("PYTHONPATH", "")]),
    )  # fmt: skip


@pytest.mark.parametrize(("world", "scenarios"), [(2, 9), (4, 4)])
def test_each_collective_is_recorded_with_its_group_bytes_and_end(tmp_path, world, scenarios):
    with ranks(tmp_path, world) as started:
        output = [rank.communicate(timeout=PATIENCE.seconds(170))[0] for rank in started]
        assert [rank.returncode for rank in started] == [0] * world, "\n".join(output)
    for rank in range(world):
        wrong = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert len(wrong) == scenarios
        assert not any(wrong.values()), f"rank {rank}: " + "\n".join(wrong.values())


def line_of(rank: Popen[str]) -> str:
    assert rank.stdout is not None
    return rank.stdout.readline().strip()


def brief(records: list[Collective]) -> list[tuple[str, int, str]]:
    return [(r.op, r.bytes, r.state) for r in records]


def untimed(records: list[Collective]) -> list[Collective]:
    """Drops times: each read converts ticks with clocks read anew."""
    return [r._replace(begin_ns=None, end_ns=None) for r in records]


def test_a_killed_rank_that_hung_in_an_all_reduce_left_it_open_in_its_file(tmp_path):
    def opened(path: str) -> list[tuple[int, bool]]:
        return [(r.bytes, r.seq is not None) for r in collectives.read(path) if r.state == "open"]

    with ranks(tmp_path, 2, "one_stays_away") as (hung, away):
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


def test_a_hundred_thousand_all_reduces_leave_none_open(tmp_path):
    with ranks(tmp_path, 1, "hundred_thousand") as (rank,):
        path = line_of(rank)
        assert rank.wait(PATIENCE.seconds(240)) == 0
        records = collectives.read(path)
    assert {r.state for r in records} == {"ended"}
    numbers = [r.seq for r in records if r.seq is not None]
    assert len(numbers) > 1000
    # Parts of the older ones are overwritten: a call whose end came late stands there alone.
    assert numbers[-1000:] == list(range(numbers[-1] - 999, numbers[-1] + 1))
    assert len(set(numbers)) == len(numbers)
    assert numbers[-1] - 100_000 in (-1, 0, 1, 2)  # init_process_group may issue collectives


def test_a_forked_child_records_its_own_collectives_in_its_own_file(tmp_path):
    with ranks(tmp_path, 1, "fork") as (rank,):
        path = Path(line_of(rank))
        assert rank.wait(PATIENCE.limit) == 0
    (child,) = set(path.parent.iterdir()) - {path}
    childs = [("allreduce_", 12, "ended"), ("barrier", 0, "ended")]
    assert brief(collectives.read(child))[-2:] == childs
    assert brief(collectives.read(path))[-1:] == [("allreduce_", 28, "ended")]
    assert childs[0] not in brief(collectives.read(path))


def test_threads_may_issue_while_the_process_ends(tmp_path):
    with ranks(tmp_path, 1, "issued_at_exit") as (rank,):
        path = line_of(rank)
        rank.wait(PATIENCE.limit)
    # gloo may end such a process with a signal; the record is still whole.
    assert len(collectives.read(path)) > 10


def test_what_is_no_sink_is_refused():
    with pytest.raises(ValueError, match="PyCapsule"):
        _native.torch().start_collectives(object())

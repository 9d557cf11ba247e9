"""Tests with ranks that pass, fail and hang in all ways: test_ranks.py copies and runs them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings

import pytest

LONG = 10_000


@pytest.fixture(scope="session")
def number():
    return {"made": os.getpid()}


@pytest.fixture
def doubled(number, request):
    yield 2 * request.param
    print("fixture ends")


@pytest.fixture
def broken_in_rank_1(ranks):
    if ranks.rank == 1:
        raise OSError("no such device")


@pytest.fixture
def broken_at_its_end(ranks):
    yield
    if ranks.rank == 1:
        raise OSError("cannot clean up")


@pytest.mark.ranks(3)
def test_each_rank_knows_its_place(ranks, number, tmp_path):
    environ = {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    assert environ == {"RANK": str(ranks.rank), "LOCAL_RANK": str(ranks.rank), "WORLD_SIZE": "3"}
    assert (ranks.world, number["made"]) == (3, os.getpid())
    assert f"rank{ranks.rank}" in str(tmp_path)
    (ranks.folder / str(ranks.rank)).write_text(str(os.getpid()))
    while len(pids := [file.read_text() for file in ranks.folder.iterdir()]) < 3:
        time.sleep(0.01)
    assert len(set(pids) | {str(os.getppid())}) == 4


@pytest.mark.ranks(2)
@pytest.mark.parametrize("doubled", [3, 4], indirect=True)
@pytest.mark.parametrize("text", ["a[b]::c/d", "ü"])
def test_parameters_and_fixtures(ranks, doubled, text):
    assert (doubled, text) in {(6, "a[b]::c/d"), (8, "a[b]::c/d"), (6, "ü"), (8, "ü")}


@pytest.mark.ranks(2)
def test_assertions_are_rewritten(ranks):
    values = {"loss": 1.5, "rank": ranks.rank}
    assert values == {"loss": 2.5, "rank": 1}


@pytest.mark.ranks(3)
def test_rank_1_alone_raises(ranks):
    print("rank", ranks.rank, "prints")
    if ranks.rank == 1:
        raise ValueError("labels out of range")


@pytest.mark.ranks(2)
def test_fixture_fails_in_rank_1(ranks, broken_in_rank_1):
    pass


@pytest.mark.ranks(2)
def test_fixture_fails_at_its_end(ranks, broken_at_its_end):
    pass


@pytest.mark.ranks(2)
@pytest.mark.skip(reason="by a mark")
def test_skip_by_mark(ranks):
    raise AssertionError


@pytest.mark.ranks(2)
def test_skip_in_all_ranks(ranks):
    pytest.skip("not on this machine")


@pytest.mark.ranks(2)
def test_skip_in_rank_1(ranks):
    if ranks.rank == 1:
        pytest.skip("rank 1 has no data")


@pytest.mark.ranks(2)
@pytest.mark.xfail(raises=ValueError, reason="known")
def test_xfail_in_rank_1(ranks):
    if ranks.rank == 1:
        raise ValueError("as known")


@pytest.mark.ranks(2)
@pytest.mark.xfail(raises=ValueError, reason="known")
def test_xfail_of_another_kind(ranks):
    raise TypeError("not known")


@pytest.mark.ranks(2)
@pytest.mark.xfail(strict=True, reason="thought to fail")
def test_xfail_that_passes(ranks):
    pass


@pytest.mark.ranks(2)
def test_xfail_from_inside(ranks):
    pytest.xfail("says so itself")


@pytest.mark.ranks(2)
@pytest.mark.xfail(reason="dies")
def test_xfail_by_death(ranks):
    os._exit(3)


@pytest.mark.ranks(2)
def test_rank_1_exits_early(ranks):
    if ranks.rank == 1:
        os._exit(0)


@pytest.mark.ranks(3)
def test_rank_2_is_killed(ranks):
    if ranks.rank == 2:
        print("last words")
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.ranks(2)
def test_prints_much(ranks):
    line = "x" * 1023
    for _ in range(10 << 10):
        print(line)
    print("the end")
    assert ranks.rank != 1


@pytest.mark.ranks(2)
def test_leaves_children(ranks):
    subprocess.Popen(["sleep", "10007"], start_new_session=True)
    subprocess.Popen(["sleep", "10007"])


@pytest.mark.ranks(2)
def test_warns(ranks):
    warnings.warn("slow path", DeprecationWarning, stacklevel=1)


@pytest.mark.ranks(2)
async def test_async(ranks):
    await asyncio.sleep(0)


@pytest.mark.ranks(0)
def test_no_rank():
    pass


@pytest.mark.ranks("gold", level=3)
def test_mark_of_another_plugin(tmp_path):
    assert tmp_path.exists()


@pytest.mark.ranks
def test_another_mark_of_another_plugin():
    pass


def test_without_the_mark(ranks):
    pass


@pytest.mark.ranks(2, dead_line=4)
def test_unknown_argument(ranks):
    pass


@pytest.mark.ranks(2)
class TestClass:
    def setup_method(self):
        self.ready = os.environ["RANK"]

    def test_method(self, ranks):
        assert self.ready == str(ranks.rank)


class TestUnittest(unittest.TestCase):
    def setUp(self):
        self.rank = int(os.environ.get("RANK", "-1"))

    @pytest.mark.ranks(2)
    def test_passes(self):
        self.assertIn(self.rank, (0, 1))  # noqa: PT009

    @pytest.mark.ranks(2)
    def test_fails(self):
        self.assertEqual(self.rank, 0)  # noqa: PT009

    def test_without_the_mark(self):
        self.assertEqual(self.rank, -1)  # noqa: PT009


@pytest.mark.ranks(2, deadline=8)
def test_rank_1_sleeps(ranks):
    if ranks.rank == 1:
        time.sleep(LONG)


@pytest.mark.ranks(2, deadline=8)
def test_rank_1_hangs_at_its_end(ranks):
    if ranks.rank == 1:
        threading.Thread(target=threading.Event().wait).start()


@pytest.mark.ranks(2, deadline=8)
def test_rank_1_is_stopped(ranks):
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)


def all_reduce(value):
    import torch
    import torch.distributed as dist

    tensor = torch.tensor([float(value)])
    dist.all_reduce(tensor)
    return tensor.item()


@pytest.mark.torch
@pytest.mark.ranks(4, deadline=300)
def test_all_reduce(ranks, process_group):
    assert all_reduce(ranks.rank) == 6
    assert process_group.size() == 4


@pytest.mark.torch
@pytest.mark.ranks(2, deadline=300)
def test_own_process_group(ranks):
    import torch.distributed as dist

    ranks.store.set(f"rank{ranks.rank}", "here")
    assert ranks.store.get(f"rank{1 - ranks.rank}") == b"here"
    dist.init_process_group("gloo")
    assert all_reduce(1) == 2


def _waits_for_a_batch():
    threading.Event().wait(LONG)


@pytest.mark.torch
@pytest.mark.ranks(4, deadline=30)
def test_rank_2_hangs_before_a_collective(ranks, process_group):
    for _ in range(3):
        all_reduce(1)
    if ranks.rank == 2:
        _waits_for_a_batch()
    all_reduce(1)


@pytest.mark.torch
@pytest.mark.ranks(3, deadline=30)
def test_rank_0_leaves_before_a_collective(ranks, process_group):
    all_reduce(1)
    if ranks.rank:
        all_reduce(1)


@pytest.mark.torch
@pytest.mark.ranks(3, deadline=300)
def test_rank_1_raises_while_others_wait(ranks, process_group):
    all_reduce(1)
    if ranks.rank == 1:
        raise ValueError("labels out of range")
    all_reduce(1)


@pytest.mark.torch
@pytest.mark.ranks(3, deadline=300)
def test_rank_1_exits_while_others_wait(ranks, process_group):
    all_reduce(1)
    if ranks.rank == 1:
        os._exit(0)
    all_reduce(1)


if __name__ == "__main__":
    sys.exit("run by pytest")

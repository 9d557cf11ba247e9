"""The memory of a sweep: its size, and the part that each case uses."""

from itertools import pairwise
from unittest.mock import MagicMock

import pytest

from oddrank.bench import report
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.plan import Limits, memory_of, reserve, tasks

SWEEP = {"backends": ["auto"], "dtypes": ["float32"], "ops": ["sum"], "places": ["auto"]}
MIB, GIB = 1 << 20, 1 << 30


def cases(collectives, sizes, world=2):
    return [t.case for t in tasks(**SWEEP, collectives=collectives, sizes=sizes, world=world)]


def test_memory_is_for_the_largest_case_that_fits_and_64_mib_for_windows_at_most():
    todo = cases(["all_gather"], [8, MIB, GIB])
    assert reserve(todo, 2, limit=4.0 * GIB) == 2 * GIB
    assert reserve(todo, 2, limit=1.0 * GIB) == 64 * MIB
    assert reserve(todo, 2, limit=3.0 * MIB) == 3 * MIB  # 1 MB of it is for windows
    assert reserve(todo, 2, limit=8.0) == 0


def test_cases_in_place_and_out_of_place_share_what_is_reserved():
    """16 GiB in place and twice 8 GiB out of place share 16 GiB, not the sum of both."""
    todo = cases(["all_reduce", "all_gather"], [8 * GIB, 16 * GIB])
    assert reserve(todo, 2, limit=18.7 * GIB) == 16 * GIB
    assert reserve(todo, 2, limit=40.0 * GIB) == 32 * GIB


@pytest.mark.parametrize("limit", [0, 100, 5000, MIB + 1, 20.5 * MIB, 100 * MIB, 3.3 * GIB])
@pytest.mark.parametrize("world", [1, 3, 8])
def test_no_more_is_reserved_than_there_is_and_enough_for_every_case_that_fits(world, limit):
    todo = cases(list(COLLECTIVES), [1, 1000, 4096, MIB, 48 * MIB, GIB, 2 * GIB], world)
    reserved = reserve(todo, world, limit)
    assert reserved <= limit
    for case in todo:
        assert (memory_of(case, world) <= reserved) == (memory_of(case, world) <= limit), case


@pytest.mark.parametrize(
    ("collectives", "sizes", "free", "said"),
    [
        (["all_gather"], [MIB], 80 * GIB, "a rank takes 64 MiB."),
        (["all_reduce", "all_gather"], [8 * GIB, 16 * GIB], 80 * GIB, "takes 32 GiB."),
        (["all_reduce", "all_gather"], [8 * GIB, 16 * GIB], 40 * GIB, "so it takes 16 GiB."),
    ],
)
def test_a_dry_run_says_what_is_reserved(monkeypatch, collectives, sizes, free, said):
    monkeypatch.setattr("oddrank.machine.device.free_host_memory", lambda: 2 * free)
    todo = tasks(**SWEEP, collectives=collectives, sizes=sizes, world=2)
    _, sentence = report.plan_rows(todo, MagicMock(world=2, local_world=1), Limits(60, 300))
    assert said in sentence


@pytest.mark.needs("torch")
@pytest.mark.parametrize("place", ["in", "out"])
@pytest.mark.parametrize("limit", [5000, MIB + 1, 20 * MIB])
@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("unaligned", [False, True])
def test_each_case_sends_from_and_receives_into_memory_of_its_own(name, limit, place, unaligned):
    import torch

    from oddrank.bench.c10d import C10d

    world, wanted = 3, {**SWEEP, "places": [place]}
    sizes = [64, 3000, 50_000, MIB]
    todo = tasks(**wanted, collectives=[name], sizes=sizes, world=world, unaligned=unaligned)
    fitting = [task.case for task in todo if memory_of(task.case, world) <= limit]
    assert fitting
    for rank in range(world):
        device = torch.device("cpu")
        group = MagicMock(rank=rank, world=world, ranks=range(world), torch=torch, device=device)
        backend = C10d(group)
        backend.reserve(reserve(fitting, world, limit))
        first = backend._memory.data_ptr()
        for case in fitting:
            layout = COLLECTIVES[name].layout(case, rank, world)
            seen = []
            for ours, got in backend.prepare(case)._windows:
                assert (len(ours), len(got)) == (layout.send_count, layout.recv_count)
                if place == "in":  # one buffer is inside the other, or the same
                    seen.append(max(ours, got, key=len))
                else:
                    seen += [ours, got]
                shifts = {(t.data_ptr() - first) % 512 for t in seen if len(t)}
                assert shifts <= {4 if unaligned else 0}, case
            ends = sorted((t.data_ptr(), t.data_ptr() + 4 * len(t)) for t in seen if len(t))
            apart = [(first, first), *ends, (first + limit, 0)]
            for (_, end), (begin, _) in pairwise(apart):
                assert end <= begin, case

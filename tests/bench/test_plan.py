"""The memory of a sweep: its size, and the part that each case uses."""

from itertools import pairwise, product
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
    one = cases(["all_gather"], [8, MIB, GIB])
    # 16 GiB in place and twice 8 GiB out of place share 16 GiB, not the sum of both.
    both = cases(["all_reduce", "all_gather"], [8 * GIB, 16 * GIB])
    for todo, limit, reserved in (
        (one, 4.0 * GIB, 2 * GIB),
        (one, 1.0 * GIB, 64 * MIB),
        (one, 3.0 * MIB, 3 * MIB),  # 1 MB of it is for windows
        (one, 8.0, 0),
        (both, 18.7 * GIB, 16 * GIB),
        (both, 40.0 * GIB, 32 * GIB),
    ):
        assert reserve(todo, 2, limit) == reserved, limit


def test_no_more_is_reserved_than_there_is_and_enough_for_every_case_that_fits():
    limits = (0, 100, 5000, MIB + 1, 20.5 * MIB, 100 * MIB, 3.3 * GIB)
    for world, limit in product((1, 3, 8), limits):
        todo = cases(list(COLLECTIVES), [1, 1000, 4096, MIB, 48 * MIB, GIB, 2 * GIB], world)
        reserved = reserve(todo, world, limit)
        assert reserved <= limit
        for case in todo:
            memory = memory_of(case, world)
            assert (memory <= reserved) == (memory <= limit), (case, world, limit)


def test_a_dry_run_says_what_is_reserved(monkeypatch, golden):
    both, said = (["all_reduce", "all_gather"], [8 * GIB, 16 * GIB]), []
    for what, free in (((["all_gather"], [MIB]), 80), (both, 80), (both, 40)):
        there_is = "oddrank.machine.device.free_host_memory"
        monkeypatch.setattr(there_is, lambda bytes_=2 * free * GIB: bytes_)
        todo = tasks(**SWEEP, collectives=what[0], sizes=what[1], world=2)
        said.append(report.plan_rows(todo, MagicMock(world=2, local_world=1), Limits(60, 300))[1])
    golden("\n".join(said))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", COLLECTIVES)
def test_each_case_sends_from_and_receives_into_memory_of_its_own(name):
    import torch

    from oddrank.bench.c10d import C10d

    world, sizes = 3, [64, 3000, 50_000, MIB]
    every = product(("in", "out"), (5000, MIB + 1, 20 * MIB), (False, True), range(world))
    for place, limit, unaligned, rank in every:
        wanted = {**SWEEP, "places": [place]}
        todo = tasks(**wanted, collectives=[name], sizes=sizes, world=world, unaligned=unaligned)
        fitting = [task.case for task in todo if memory_of(task.case, world) <= limit]
        assert fitting
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
                # In place one buffer is inside the other, or the same.
                seen += [max(ours, got, key=len)] if place == "in" else [ours, got]
            seen = [(t.data_ptr(), 4 * len(t)) for t in seen if len(t)]
            assert {(at - first) % 512 for at, _ in seen} <= {4 if unaligned else 0}, case
            ends = sorted((at, at + size) for at, size in seen)
            for (_, end), (begin, _) in pairwise([(first, first), *ends, (first + limit, 0)]):
                assert end <= begin, case

"""Checks the table's layouts against collectives simulated with lists."""

from itertools import accumulate, product

import pytest

from oddrank.bench.case import DTYPES, NO_OP, OPS
from oddrank.bench.collectives import COLLECTIVES, REDUCED, ROOT, parts_of
from oddrank.bench.command import run
from oddrank.bench.plan import in_turn, tasks
from oddrank.bench.sampling import MOST_PASSES

SWEEP = {"backends": ["auto"], "dtypes": ["float32"], "ops": ["sum"], "places": ["auto"]}

WORLDS = [1, 2, 3, 4, 7, 8]


def sends(name, case, world):
    """Returns every rank's input as (rank, index) pairs, by its layout."""
    layouts = [COLLECTIVES[name].layout(case, rank, world) for rank in range(world)]
    return [
        [(s.source, s.first + i) for s in layout.send for i in range(s.count)] for layout in layouts
    ]


def total(put):
    return [(REDUCED, i) for i in range(len(put[0]))]


def parts(values, world):
    size = len(values) // world
    return [values[r * size : (r + 1) * size] for r in range(world)]


def only_root(values, world):
    return [values if rank == ROOT else None for rank in range(world)]


def uneven(put, world):
    unit = len(put[0]) // (world * (world + 1) // 2)
    got = [[] for _ in range(world)]
    for source, values in enumerate(put):
        at = 0
        for peer, units in enumerate(parts_of(source, world)):
            got[peer] += values[at : at + units * unit]
            at += units * unit
    return got


def joined(put):
    return [value for one in put for value in one]


# Collective -> every rank's result by its definition; None: not checked.
PLAYED = {
    "all_reduce": lambda put, n: [total(put)] * n,
    "reduce": lambda put, n: only_root(total(put), n),
    "reduce_scatter": lambda put, n: parts(total(put), n),
    "all_gather": lambda put, n: [joined(put)] * n,
    "gather": lambda put, n: only_root(joined(put), n),
    "broadcast": lambda put, n: [put[ROOT]] * n,
    "scatter": lambda put, n: parts(put[ROOT], n),
    "all_to_all": lambda put, n: [
        joined(row) for row in zip(*map(parts, put, [n] * n), strict=True)
    ],
    "all_to_all_v": uneven,
    "sendrecv": lambda put, n: [put[(r - 1) % n] for r in range(n)],
}


@pytest.mark.parametrize("name", PLAYED)
def test_every_rank_receives_what_the_collective_defines(name):
    for world in WORLDS:
        case = COLLECTIVES[name].case("int32", 4 * 100, "sum", False, world)
        due = PLAYED[name](sends(name, case, world), world)
        for rank in range(world):
            where = f"rank {rank} of {world}"
            layout = COLLECTIVES[name].layout(case, rank, world)
            got = [(s.source, s.first + i) for s in layout.recv for i in range(s.count)]
            assert got == (due[rank] or []), where
            if layout.recv:  # without a hole or an overlap, and up to the buffer's end
                *begins, end = accumulate((s.count for s in layout.recv), initial=0)
                assert [s.offset for s in layout.recv] == begins, where
                assert layout.recv_count == end, where


@pytest.mark.parametrize("world", [2, 3, 8])
def test_uneven_splits_differ_from_rank_to_rank_and_from_their_answer(world):
    table = [parts_of(rank, world) for rank in range(world)]
    assert all(sorted(row) == list(range(1, world + 1)) for row in table)
    assert all(sorted(column) == list(range(1, world + 1)) for column in zip(*table, strict=True))
    if world > 2:
        assert table[0][1] != table[1][0]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_size_is_rounded_to_what_the_ranks_can_share_and_never_to_nothing(name):
    row = COLLECTIVES[name]
    sizes = (1, 8, 4096, 1 << 20, (1 << 34) + 5)
    for dtype, world, size in product(DTYPES, (1, 2, 7, 8, 1000), sizes):
        case = row.case(dtype, size, "sum", True, world)
        where = f"{case} of {size} B on {world} ranks"
        assert case.op == ("sum" if row.reduces else NO_OP), where
        if name == "barrier":
            assert case.bytes == 0
            continue
        unit = DTYPES[dtype] * row.shares(world)
        assert case.bytes % unit == 0, where
        assert unit <= case.bytes <= max(unit, size), where
        assert case.bytes + unit > size, where


@pytest.mark.parametrize(
    ("name", "factor"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75),
     ("all_to_all_v", 0.75), ("gather", 0.75), ("scatter", 0.75), ("broadcast", 1),
     ("reduce", 1), ("sendrecv", 1)],
)  # fmt: skip
def test_bus_factors_are_those_of_nccl_tests(name, factor):
    assert COLLECTIVES[name].bus_factor(4) == pytest.approx(factor)


@pytest.mark.parametrize("world", [2, 8])
def test_help_says_how_far_busbw_of_uneven_splits_is_below_what_crosses_the_bus(world):
    """The factor of nccl-tests assumes even splits."""
    parts = parts_of(0, world)
    crossing = 1 - parts[0] / sum(parts)
    below = 1 - COLLECTIVES["all_to_all_v"].bus_factor(world) / crossing
    assert below == pytest.approx(1 / (world + 2))
    assert f"{100 * below:.0f} %" in " ".join(run.help.split())


def test_tasks_that_round_to_one_are_run_once():
    wanted = {**SWEEP, "collectives": ["all_gather", "barrier"], "ops": ["sum", "max"]}
    todo = tasks(**wanted, sizes=[8, 16, 32, 64], world=8)
    assert [task.name for task in todo] == [
        "all_gather float32 32 B", "all_gather float32 64 B", "barrier float32 0 B",
    ]  # fmt: skip


def test_names_of_stages_tell_all_tasks_apart():
    todo = tasks(
        backends=["nccl", "c10d"], collectives=list(COLLECTIVES), dtypes=list(DTYPES),
        ops=["sum", "avg"], sizes=[8, 4096], places=["in", "out"], world=4,
    )  # fmt: skip
    assert len({task.name for task in todo}) == len(todo)


def test_no_name_is_longer_than_a_stages_and_all_differ():
    todo = tasks(
        backends=["nccl", "c10d"], collectives=list(COLLECTIVES), dtypes=list(DTYPES),
        ops=list(OPS), sizes=[1024, 16777201], places=["in", "out"], world=7,
    )  # fmt: skip
    names = [one_pass.name for one_pass in in_turn(todo, MOST_PASSES)]
    assert max(map(len, names)) <= 47
    assert len(set(names)) == len(todo) * MOST_PASSES


def test_a_barrier_is_measured_once_whatever_else_varies():
    wanted = {**SWEEP, "dtypes": list(DTYPES), "places": ["in", "out"]}
    (task,) = tasks(**wanted, collectives=["barrier"], sizes=[8, 64], world=2)
    assert task.name == "barrier float32 0 B"

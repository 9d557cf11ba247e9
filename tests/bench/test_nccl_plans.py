"""NCCL's calls on every rank move every element to its place, or the case is refused."""

import ctypes
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import product

import pytest

from bench.nccl_process import in_process, make_fake, real_nccl
from golden import Golden
from oddrank.bench.case import COLLECTIVES, DTYPES, NO_OP, OPS, REDUCED, Case, Segment
from oddrank.bench.native import Plan, plan_of, refusal

# With and without the functions of 2.28.
NEW, GROUPED = (), ("ncclAlltoAll", "ncclGather", "ncclScatter")


def case_of(collective: str, world: int, count: int = 6) -> Case:
    row = COLLECTIVES[collective]
    return row.case("float32", count * row.shares(world) * DTYPES["float32"], "sum", world)


def gathered(world: int, count: int, first_of: list[int]) -> list[tuple[int, int, int]]:
    return [(source * count, source, first_of[source]) for source in range(world)]


# Function -> (offset, source, first element) of each piece that a rank receives, of n ranks that
# each give so many elements, from the first one on.
Pieces = list[tuple[int, int, int]]
RESULTS: dict[str, Callable[[int, int, int, int, list[int]], Pieces]] = {
    "AllReduce": lambda rank, n, count, root, first: [(0, REDUCED, 0)],
    "Reduce": lambda rank, n, count, root, first: [(0, REDUCED, 0)] if rank == root else [],
    "ReduceScatter": lambda rank, n, count, root, first: [(0, REDUCED, rank * count)],
    "Broadcast": lambda rank, n, count, root, first: [(0, root, first[root])],
    "AllGather": lambda rank, n, count, root, first: gathered(n, count, first),
    "Gather": lambda rank, n, count, root, first: gathered(n, count, first) * (rank == root),
    "Scatter": lambda rank, n, count, root, first: [(0, root, first[root] + rank * count)],
    "AlltoAll": lambda rank, n, count, root, first: [
        (source * count, source, rank * count) for source in range(n)
    ],
}


def by_place(segment: Segment) -> tuple[int, int]:
    return segment.offset, segment.source


def received(plans: list[Plan]) -> list[list[Segment]]:
    """Models NCCL by its documentation: returns each rank's elements after one run of the plans."""
    world = len(plans)
    got: list[list[Segment]] = [[] for _ in plans]
    sent: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for rank, plan in enumerate(plans):
        for function, send_at, _, count, peer in plan.calls:
            if function == "Send":
                sent[rank, peer].append((send_at, count))
    first_of = [plan.calls[0][1] for plan in plans]
    for rank, plan in enumerate(plans):
        for function, _, recv_at, count, peer in plan.calls:
            if function == "Recv":
                first, as_sent = sent[peer, rank].pop(0)
                assert as_sent == count, "both sides must give the same count"
                got[rank].append(Segment(recv_at, count, peer, first))
            elif function != "Send":
                for at, source, first in RESULTS[function](rank, world, count, peer, first_of):
                    got[rank].append(Segment(recv_at + at, count, source, first))
    assert not any(sent.values()), "every send needs its receive"
    return got


@pytest.mark.parametrize("collective", [name for name in COLLECTIVES if name != "barrier"])
def test_every_element_gets_to_where_it_belongs(collective: str):
    beyond_int32 = 3 << 32
    for missing, count, world in product((NEW, GROUPED), (6, beyond_int32), (1, 2, 3, 8)):
        case = case_of(collective, world, count)
        plans = [plan_of(case, rank, world, missing) for rank in range(world)]
        for rank, segments in enumerate(received(plans)):
            layout = COLLECTIVES[collective].layout(case, rank, world)
            where = f"{case}, rank {rank} of {world}, {missing}"
            assert sorted(segments, key=by_place) == sorted(layout.recv, key=by_place), where


def test_nothing_lies_outside_of_the_windows_which_are_alike_on_all_ranks():
    joins, divides = ("AllGather", "Gather"), ("ReduceScatter", "Scatter")
    for missing, world, collective in product((NEW, GROUPED), (1, 2, 3, 8), COLLECTIVES):
        case = case_of(collective, world)
        plans = [plan_of(case, rank, world, missing) for rank in range(world)]
        assert len({(plan.send_count, plan.recv_count) for plan in plans}) == 1
        for plan in plans:
            for function, send_at, recv_at, count, _ in plan.calls:
                reads = count * (world if function in (*divides, "AlltoAll") else 1)
                writes = count * (world if function in (*joins, "AlltoAll") else 1)
                assert function == "Recv" or send_at + reads <= plan.send_count
                assert function == "Send" or recv_at + writes <= plan.recv_count


@pytest.mark.needs("cuda-build")
def test_every_row_calls_functions_that_the_real_library_has(source):
    library = ctypes.CDLL(real_nccl())
    issued, _ = in_process(source)
    assert list(issued) == list(COLLECTIVES)
    for text in issued.values():
        names = re.findall(r"nccl\w+", text)
        assert names
        for name in names:
            assert hasattr(library, name), text


@pytest.mark.needs("cuda-build")
def test_an_old_library_gets_groups_in_place_of_what_it_lacks(tmp_path, source):
    issued, _ = in_process(source, ODDRANK_NCCL_LIBRARY=str(make_fake(tmp_path)))
    assert issued == ["grouped ncclSend and ncclRecv"] * 3 + ["ncclAllGather"]


def test_what_nccl_has_not_is_refused_by_name_and_all_else_is_granted(golden: Golden):
    for row, dtype, op in product(COLLECTIVES.values(), DTYPES, OPS):
        assert refusal(row.case(dtype, 4096, op, 2), 2, 22809, 90) is None
    # Data that is only moved may be fp8 on any GPU.
    assert refusal(Case("all_gather", "float8_e5m2", 64, NO_OP), 2, 22809, 80) is None
    fp8 = Case("all_reduce", "float8_e4m3fn", 64)
    alone = Case("reduce_scatter", "bfloat16", 64, "avg", in_place=False)
    said = [
        refusal(fp8, 2, 22304, 90), refusal(fp8, 2, 22809, 80),
        refusal(Case("all_reduce", "float8_e4m3fn", 64, "avg"), 1, 22809, 90),
        refusal(alone, 1, 22809, 90),
    ]  # fmt: skip
    golden("\n".join(map(str, said)))


def test_an_avg_is_refused_only_where_a_library_leaves_elements_out():
    def refused(world=1, version=22809, op="avg", dtype="float32", in_place=False):
        return refusal(Case("reduce_scatter", dtype, 64, op, in_place), world, version, 80)

    assert "leaves out elements" in str(refused())
    for more in (
        {"version": 21806}, {"version": 22907}, {"world": 2}, {"in_place": True},
        {"dtype": "int32"}, {"op": "sum"}, {"op": NO_OP},
    ):  # fmt: skip
        assert refused(**more) is None, more

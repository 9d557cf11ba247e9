"""NCCL's calls on every rank move every element to its place, or the case is refused."""

import ctypes
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest

from bench.nccl_process import in_process, make_fake, real_nccl
from bench.told import refusal
from golden import Golden
from oddrank import _native
from oddrank.bench.case import DTYPES, NO_OP, Case
from oddrank.bench.collectives import COLLECTIVES, REDUCED, Segment
from oddrank.bench.native import _counts_of, given_counts

pytestmark = pytest.mark.needs("cuda-build")

# Newer than 2.24, with and without the functions of 2.28.
NEW, GROUPED = {"version": 22809, "newest": True}, {"version": 22809}
IN_PLACE = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
}  # fmt: skip


def case_of(collective: str, world: int, *, in_place: bool, count: int = 6) -> Case:
    row = COLLECTIVES[collective]
    size = count * row.shares(world) * DTYPES["float32"]
    return replace(row.case("float32", size, "sum", world), in_place=in_place)


def gathered(world: int, count: int, first_of: list[int]) -> list[tuple[int, int, int]]:
    return [(source * count, source, first_of[source]) for source in range(world)]


# Function -> (offset, source, first element) of each piece that a rank receives, of n ranks that
# each give so many elements, from the first one on.
Pieces = list[tuple[int, int, int]]
RESULTS: dict[str, Callable[[int, int, int, int, list[int]], Pieces]] = {
    "all_reduce": lambda rank, n, count, root, first: [(0, REDUCED, 0)],
    "reduce": lambda rank, n, count, root, first: [(0, REDUCED, 0)] if rank == root else [],
    "reduce_scatter": lambda rank, n, count, root, first: [(0, REDUCED, rank * count)],
    "broadcast": lambda rank, n, count, root, first: [(0, root, first[root])],
    "all_gather": lambda rank, n, count, root, first: gathered(n, count, first),
    "gather": lambda rank, n, count, root, first: gathered(n, count, first) * (rank == root),
    "scatter": lambda rank, n, count, root, first: [(0, root, first[root] + rank * count)],
    "all_to_all": lambda rank, n, count, root, first: [
        (source * count, source, rank * count) for source in range(n)
    ],
}


def plan_of(case: Case, rank: int, world: int, **library: Any) -> dict[str, Any]:
    plan: dict[str, Any] = _native.cuda().nccl_plan(
        case.collective, case.dtype, case.op, case.bytes, rank, world,
        in_place=case.in_place, **given_counts(case, rank, world), **library,
    )  # fmt: skip
    return plan


def by_place(segment: Segment) -> tuple[int, int]:
    return segment.offset, segment.source


def received(plans: list[dict[str, Any]]) -> list[list[Segment]]:
    """Models NCCL by its documentation: returns each rank's elements after one run of the plans.

    Offsets count from each rank's own part, as in Layout.
    """
    world = len(plans)
    got: list[list[Segment]] = [[] for _ in plans]
    sent: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)

    def put(rank: int, at: int, count: int, source: int, first: int) -> None:
        got[rank].append(Segment(at - plans[rank]["recv_at"], count, source, first))

    for rank, plan in enumerate(plans):
        for function, send_at, _, count, peer in plan["calls"]:
            if function == "send":
                sent[rank, peer].append((send_at - plan["send_at"], count))
    first_of = [p["calls"][0][1] - p["send_at"] for p in plans]
    for rank, plan in enumerate(plans):
        for function, _, recv_at, count, peer in plan["calls"]:
            if function == "recv":
                first, as_sent = sent[peer, rank].pop(0)
                assert as_sent == count, "both sides must give the same count"
                put(rank, recv_at, count, peer, first)
            elif function != "send":
                for at, source, first in RESULTS[function](rank, world, count, peer, first_of):
                    put(rank, recv_at + at, count, source, first)
    assert not any(sent.values()), "every send needs its receive"
    return got


@pytest.mark.parametrize("collective", [name for name in COLLECTIVES if name != "barrier"])
def test_every_element_gets_to_where_it_belongs(collective: str):
    places = {False, collective in IN_PLACE}
    beyond_int32 = 3 << 32
    every = product((NEW, GROUPED), (6, beyond_int32), (1, 2, 3, 8), places)
    for library, count, world, in_place in every:
        case = case_of(collective, world, in_place=in_place, count=count)
        plans = [plan_of(case, rank, world, **library) for rank in range(world)]
        for rank, segments in enumerate(received(plans)):
            layout = COLLECTIVES[collective].layout(case, rank, world)
            where = f"{case}, rank {rank} of {world}, in place: {in_place}, {library}"
            assert sorted(segments, key=by_place) == sorted(layout.recv, key=by_place), where


def test_nothing_lies_outside_of_the_windows_which_are_alike_on_all_ranks_and_as_nccl_defines():
    joins, divides = ("all_gather", "gather"), ("reduce_scatter", "scatter")
    for library, world, collective in product((NEW, GROUPED), (1, 2, 3, 8), COLLECTIVES):
        for in_place in {False, collective in IN_PLACE}:
            case = case_of(collective, world, in_place=in_place)
            plans = [plan_of(case, rank, world, **library) for rank in range(world)]
            assert len({(p["send_count"], p["recv_count"], p["element"]) for p in plans}) == 1
            for rank, plan in enumerate(plans):
                whole = max(plan["send_count"], plan["recv_count"])
                for function, send_at, recv_at, count, _ in plan["calls"]:
                    reads = count * (world if function in (*divides, "all_to_all") else 1)
                    writes = count * (world if function in (*joins, "all_to_all") else 1)
                    assert send_at + reads <= (whole if in_place else plan["send_count"])
                    assert recv_at + writes <= (whole if in_place else plan["recv_count"])
                if in_place:
                    assert plan["send_at"] == (6 * rank if collective in joins else 0)
                    assert plan["recv_at"] == (6 * rank if collective in divides else 0)


def test_the_table_has_the_collectives_of_bench_and_no_other():
    assert _native.cuda().nccl_collectives() == list(COLLECTIVES)


def test_every_row_calls_functions_that_the_real_library_has(source):
    library = ctypes.CDLL(real_nccl())
    issued, _ = in_process(source)
    assert list(issued) == list(COLLECTIVES)
    for text in issued.values():
        names = re.findall(r"nccl\w+", text)
        assert names
        for name in names:
            assert hasattr(library, name), text


def test_an_old_library_gets_groups_in_place_of_what_it_lacks(tmp_path, source):
    (issued, refused), _ = in_process(source, ODDRANK_NCCL_LIBRARY=str(make_fake(tmp_path)))
    assert issued == ["grouped ncclSend and ncclRecv"] * 3 + ["ncclAllGather"]
    assert refused.startswith("NCCL 2.23.4 leaves out elements"), "its version counts"


def refused(collective: str, dtype: str = "float32", op: str = "sum", **more: Any) -> str:
    given: dict[str, Any] = {"world": 2, "in_place": False, "version": 22809, **more}
    said: str = _native.cuda().nccl_refusal(collective, dtype, op, **given)
    return said


def test_what_nccl_has_not_is_refused_by_name_and_all_else_is_granted(golden: Golden):
    for collective, dtype, op in product(COLLECTIVES, DTYPES, ("sum", "min", "max", "avg", "prod")):
        assert refused(collective, dtype, op) == ""
    # Data that is only moved may be fp8 on any GPU, and needs no operation.
    assert refused("all_gather", "float8_e5m2", "none", compute_capability=80) == ""
    assert refused("broadcast", "float32", "none") == ""
    fp8, alone = {"dtype": "float8_e4m3fn"}, {"op": "avg", "world": 1}
    said = [
        refused(**{"collective": "all_reduce", **asked})
        for asked in (
            {"collective": "all_together"}, {"dtype": "complex64"}, {"op": "mulsum"},
            {"dtype": "float8_e5m2", "version": 22304}, {**fp8, "compute_capability": 80},
            {**fp8, **alone}, {"dtype": "bfloat16", **alone},
            {"collective": "all_to_all", "in_place": True},
            {"collective": "sendrecv", "in_place": True},
        )
    ]  # fmt: skip
    golden("\n".join(said))


def test_an_avg_is_refused_only_where_a_library_leaves_elements_out():
    asked: dict[str, Any] = {"collective": "reduce_scatter", "op": "avg", "world": 1}
    assert "leaves out elements" in refused(**asked)
    for more in (
        {"version": 21806}, {"version": 22907}, {"world": 2}, {"in_place": True},
        {"dtype": "int32"}, {"op": "sum"}, {"collective": "all_gather"},
    ):  # fmt: skip
        assert refused(**{**asked, **more}) == "", more


def test_sizes_ranks_and_counts_that_cannot_be_are_errors(golden: Golden):
    ask, uneven = partial(_native.cuda().nccl_plan, **NEW), ("all_to_all_v", "float32", "none")
    said = [
        refusal(ask, "all_gather", "float32", "none", bytes_, rank, world)
        for bytes_, rank, world in ((6, 0, 2), (0, 0, 2), (12, 0, 2), (16, 2, 2), (16, 0, 0))
    ]
    for counts in ([1], [3, 2], [2**64 - 1, 2]):
        said.append(refusal(ask, *uneven, 16, 0, 2, send_counts=counts, recv_counts=[2, 2]))
    golden("\n".join(said))


def test_a_link_is_one_send_or_one_receive_or_both_at_once():
    for sent, received in ((64, 0), (0, 64), (8, 8)):
        counts = _counts_of(2, 4, sent, received)
        plan = _native.cuda().nccl_plan(
            "all_to_all_v", "int8", NO_OP, max(sent, received), 1, 4, version=22809, **counts
        )
        calls = [("send", 0, 0, sent, 2), ("recv", 0, 0, received, 2)]
        assert plan["calls"] == [call for call in calls if call[3]]
        assert (plan["send_count"], plan["recv_count"]) == (sent, received)

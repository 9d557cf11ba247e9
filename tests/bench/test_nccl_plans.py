"""NCCL's calls on every rank move every element to its place, or the case is refused."""

import ctypes
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from bench.nccl_process import in_process, make_fake, real_nccl
from oddrank import _native
from oddrank.bench.case import DTYPES, NO_OP, Case
from oddrank.bench.collectives import COLLECTIVES, REDUCED, ROOT, Segment
from oddrank.bench.native import _counts_of, given_counts
from oddrank.errors import OddrankError

pytestmark = pytest.mark.needs("cuda-build")

# Newer than 2.24, with and without the functions of 2.28.
NEW, GROUPED = {"version": 22809, "newest": True}, {"version": 22809}
IN_PLACE = {
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
}


def case_of(collective: str, world: int, *, in_place: bool, count: int = 6) -> Case:
    row = COLLECTIVES[collective]
    size = count * row.shares(world) * DTYPES["float32"]
    return row.case("float32", size, "sum", in_place, world)


def gathered(world: int, count: int, first_of: list[int]) -> list[tuple[int, int, int]]:
    return [(source * count, source, first_of[source]) for source in range(world)]


# Function -> (offset, source, first element) of each piece that a rank receives.
RESULTS: dict[str, Callable[[int, int, int, int, list[int]], list[tuple[int, int, int]]]] = {
    "all_reduce": lambda rank, n, count, root, first_of: [(0, REDUCED, 0)],
    "reduce": lambda rank, n, count, root, first_of: [(0, REDUCED, 0)] if rank == root else [],
    "reduce_scatter": lambda rank, n, count, root, first_of: [(0, REDUCED, rank * count)],
    "broadcast": lambda rank, n, count, root, first_of: [(0, root, first_of[root])],
    "all_gather": lambda rank, n, count, root, first_of: gathered(n, count, first_of),
    "gather": lambda rank, n, count, root, first_of: (
        gathered(n, count, first_of) if rank == root else []
    ),
    "scatter": lambda rank, n, count, root, first_of: [(0, root, first_of[root] + rank * count)],
    "all_to_all": lambda rank, n, count, root, first_of: [
        (source * count, source, rank * count) for source in range(n)
    ],
}


def plan_of(case: Case, rank: int, world: int, **library: Any) -> dict[str, Any]:
    plan: dict[str, Any] = _native.cuda().nccl_plan(
        case.collective, case.dtype, case.op, case.bytes, rank, world,
        root=ROOT, in_place=case.in_place, **given_counts(case, rank, world), **library,
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


@pytest.mark.parametrize("library", [NEW, GROUPED], ids=["functions", "grouped"])
def test_in_place_is_where_nccl_defines_it(library: dict[str, Any]):
    for collective in IN_PLACE:
        for rank in range(3):
            plan = plan_of(case_of(collective, 3, in_place=True), rank, 3, **library)
            part = 6 * rank
            assert plan["send_at"] == (part if collective in ("all_gather", "gather") else 0)
            assert plan["recv_at"] == (part if collective in ("reduce_scatter", "scatter") else 0)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_nothing_lies_outside_of_the_windows_and_they_are_alike_on_all_ranks(collective: str):
    places = {False, collective in IN_PLACE}
    for library, world, in_place in product((NEW, GROUPED), (1, 2, 3, 8), places):
        case = case_of(collective, world, in_place=in_place)
        plans = [plan_of(case, rank, world, **library) for rank in range(world)]
        assert len({(p["send_count"], p["recv_count"], p["element"]) for p in plans}) == 1
        for plan in plans:
            whole = max(plan["send_count"], plan["recv_count"])
            for function, send_at, recv_at, count, _ in plan["calls"]:
                reads = count * (world if function in ("reduce_scatter", "scatter") else 1)
                writes = count * (world if function in ("all_gather", "gather") else 1)
                if function == "all_to_all":
                    reads = writes = count * world
                assert send_at + reads <= (whole if in_place else plan["send_count"])
                assert recv_at + writes <= (whole if in_place else plan["recv_count"])


def test_the_table_has_the_collectives_of_bench_and_no_other():
    assert _native.cuda().nccl_collectives() == list(COLLECTIVES)


def test_every_row_calls_functions_that_the_real_library_has():
    library = ctypes.CDLL(real_nccl())
    code = """
_native.load_nccl()
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.native import _counts_of, given_counts
answer = {}
for row in COLLECTIVES.values():
    case = row.case("float32", 4096, "sum", False, 2)
    counts = given_counts(case, 0, 2)
    plan = _native.cuda().nccl_plan(row.name, "float32", case.op, case.bytes, 0, 2, **counts)
    answer[row.name] = plan["issued"]
"""
    issued, _ = in_process(code)
    assert list(issued) == list(COLLECTIVES)
    for text in issued.values():
        names = re.findall(r"nccl\w+", text)
        assert names
        for name in names:
            assert hasattr(library, name), text


def test_an_old_library_gets_groups_in_place_of_what_it_lacks(tmp_path):
    code = """
_native.load_nccl()
answer = [
    _native.cuda().nccl_plan(name, "float32", "none", 64, 0, 2)["issued"]
    for name in ("gather", "scatter", "all_to_all", "all_gather")
]
"""
    issued, _ = in_process(code, ODDRANK_NCCL_LIBRARY=str(make_fake(tmp_path)))
    assert issued == ["grouped ncclSend and ncclRecv"] * 3 + ["ncclAllGather"]


def refusal(collective: str, dtype: str = "float32", op: str = "sum", **more: Any) -> str:
    given: dict[str, Any] = {"world": 2, "in_place": False, "version": 22809, **more}
    said: str = _native.cuda().nccl_refusal(collective, dtype, op, **given)
    return said


def test_all_that_bench_knows_is_granted_by_a_new_library():
    for collective in COLLECTIVES:
        for dtype in DTYPES:
            for op in ("sum", "min", "max", "avg", "prod"):
                assert refusal(collective, dtype, op) == ""


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("NCCL has no collective all_together", {"collective": "all_together"}),
        ("NCCL has no dtype complex64", {"dtype": "complex64"}),
        ("NCCL has no operation mulsum", {"op": "mulsum"}),
        ("NCCL 2.23.4 has no float8_e5m2, 2.24 has", {"dtype": "float8_e5m2", "version": 22304}),
        (
            "NCCL reduces float8_e4m3fn on GPUs of compute capability 9.0 and newer only",
            {"dtype": "float8_e4m3fn", "compute_capability": 80},
        ),
        (
            "NCCL has no avg of float8_e4m3fn on one rank",
            {"dtype": "float8_e4m3fn", "op": "avg", "world": 1},
        ),
        (
            "NCCL 2.28.9 leaves out elements of an avg of bfloat16 on one rank, 2.29.7 does not",
            {"dtype": "bfloat16", "op": "avg", "world": 1},
        ),
        ("NCCL has no all_to_all in place", {"collective": "all_to_all", "in_place": True}),
        ("NCCL has no sendrecv in place", {"collective": "sendrecv", "in_place": True}),
    ],
)
def test_what_nccl_has_not_is_refused_by_name(said: str, asked: dict[str, Any]):
    assert refusal(**{"collective": "all_reduce", **asked}) == said


@pytest.mark.parametrize(
    "more",
    [
        {"version": 21806},
        {"version": 22907},
        {"world": 2},
        {"in_place": True},
        {"dtype": "int32"},
        {"op": "sum"},
        {"collective": "all_gather"},
    ],
)
def test_an_avg_is_refused_only_where_a_library_leaves_elements_out(more: dict[str, Any]):
    asked: dict[str, Any] = {"collective": "reduce_scatter", "op": "avg", "world": 1}
    assert "leaves out elements" in refusal(**asked)
    assert refusal(**{**asked, **more}) == ""


def test_the_loaded_library_s_version_is_the_one_that_counts(tmp_path):
    code = """
_native.load_nccl()
ask = _native.cuda().nccl_refusal
answer = ask("all_reduce", "float32", "avg", world=1, in_place=False)
"""
    said, _ = in_process(code, ODDRANK_NCCL_LIBRARY=str(make_fake(tmp_path)))
    assert said.startswith("NCCL 2.23.4 leaves out elements")


def test_data_that_is_only_moved_may_be_fp8_on_any_gpu_and_needs_no_operation():
    assert refusal("all_gather", "float8_e5m2", "none", compute_capability=80) == ""
    assert refusal("broadcast", "float32", "none") == ""


@pytest.mark.parametrize(
    ("bytes_", "rank", "world", "why"),
    [
        (6, 0, 2, "no whole number of elements"),
        (0, 0, 2, "no whole number of elements"),
        (12, 0, 2, "can't share it evenly"),
        (16, 2, 2, "no such rank"),
        (16, 0, 0, "no such rank"),
    ],
)
def test_sizes_and_ranks_that_cannot_be_are_errors(bytes_: int, rank: int, world: int, why: str):
    with pytest.raises(OddrankError, match=why):
        _native.cuda().nccl_plan("all_gather", "float32", "none", bytes_, rank, world, **NEW)


@pytest.mark.parametrize("counts", [[1], [3, 2], [2**64 - 1, 2]])
def test_counts_that_do_not_fit_are_errors(counts: list[int]):
    with pytest.raises(OddrankError, match=r"counts? "):
        _native.cuda().nccl_plan(
            "all_to_all_v", "float32", "none", 16, 0, 2,
            send_counts=counts, recv_counts=[2, 2], **NEW,
        )  # fmt: skip


@pytest.mark.parametrize(("sent", "received"), [(64, 0), (0, 64), (8, 8)])
def test_a_link_is_one_send_or_one_receive_or_both_at_once(sent: int, received: int):
    counts = _counts_of(2, 4, sent, received)
    plan = _native.cuda().nccl_plan(
        "all_to_all_v", "int8", NO_OP, max(sent, received), 1, 4, version=22809, **counts
    )
    wanted = [("send", 0, 0, sent, 2)] * bool(sent) + [("recv", 0, 0, received, 2)] * bool(received)
    assert plan["calls"] == wanted
    assert (plan["send_count"], plan["recv_count"]) == (sent, received)

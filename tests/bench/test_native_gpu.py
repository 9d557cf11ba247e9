"""The nccl back end on a real GPU, one rank: values, registration, memory, deadlines."""

import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from bench.nccl_process import in_process
from oddrank import _native
from oddrank.bench.case import COLLECTIVES, DTYPES, NO_OP, OPS, Case
from oddrank.bench.native import Native
from oddrank.bench.verify import Values
from oddrank.errors import OddrankError

pytestmark = [pytest.mark.gpu, pytest.mark.needs("cuda-build"), pytest.mark.timeout(120)]

DEVICE = 0
MIB = 1 << 20
# Elements; a multiple of no block size.
ODD_COUNT = 100_003


def make(**options: Any) -> Native:
    _native.load_nccl()
    made = Native(_native.cuda().nccl_unique_id(), 0, 1, DEVICE, seconds=30, **options)
    made.reserve(16 * MIB)
    return made


@pytest.fixture(scope="module")
def native() -> Iterator[Native]:
    made = make()
    yield made
    made.close()


def cases() -> Iterator[Case]:
    for collective in COLLECTIVES.values():
        for dtype, size in DTYPES.items():
            for op in OPS if collective.reduces else (NO_OP,):
                case = collective.case(dtype, ODD_COUNT * size, op, 1)
                for in_place in (False, True)[: 1 + case.in_place]:
                    yield replace(case, in_place=in_place)


def wrong_values(case: Case, operation: Any, *, turn: int, checked_turn: int | None = None) -> int:
    """Runs once; returns the number of wrong values. checked_turn: check against this turn."""
    values, layout = Values(DEVICE, 1), COLLECTIVES[case.collective].layout(case, 0, 1)
    values.fill(operation.send, case, case.op, layout.send, turn)
    operation.once()
    checked = turn if checked_turn is None else checked_turn
    told = values.check(operation.recv, case, case.op, layout.recv, checked)
    return sum(wrong for wrong, *_ in told)


def test_every_collective_dtype_operation_and_place_gives_the_right_values(native: Native):
    assert native._communicator.direct, "it launches in our thread"
    assert native._memory.allocator == "ncclMemAlloc"
    right, refused = 0, set()
    for number, case in enumerate(dict.fromkeys(cases())):
        why = native.refuses(case)
        if why:
            refused.add((case.collective, why))
            continue
        operation = native.prepare(case)
        assert wrong_values(case, operation, turn=number) == 0, str(case)
        right += 1
    assert right > 300
    nccl = _native.load_nccl()["version_text"]
    known = {f"NCCL has no avg of float8_{kind} on one rank" for kind in ("e4m3fn", "e5m2")}
    known |= {f"NCCL has no {name} in place" for name in ("all_to_all", "all_to_all_v", "sendrecv")}
    for dtype in (dtype for dtype in DTYPES if "float" in dtype):
        leaves_out = f"NCCL {nccl} leaves out elements of an avg of {dtype} on one rank"
        known.add(f"{leaves_out}, 2.29.7 does not")
    assert {why for _, why in refused} <= known


def test_the_check_does_see_values_that_are_wrong(native: Native):
    case = Case("all_gather", "int32", 4 * ODD_COUNT, NO_OP, in_place=False)
    assert wrong_values(case, native.prepare(case), turn=1, checked_turn=2) > ODD_COUNT // 2


@pytest.mark.parametrize("how", ["buffer", "window"])
def test_registered_memory_gives_the_same_values(how: str):
    try:
        native = make(register=how)
    except OddrankError as error:
        if how == "window" and "made no window" in str(error):
            pytest.skip(str(error))  # one GPU, or no cuMem
        raise
    assert native._memory.registered
    for name, collective in COLLECTIVES.items():
        case = collective.case("bfloat16", 2 * ODD_COUNT, "sum", 1)
        assert wrong_values(case, native.prepare(case), turn=5) == 0, name
    native.close()


def test_windows_take_turns_and_the_first_is_the_one_that_is_checked(native: Native):
    case = Case("broadcast", "float32", 4096, NO_OP, in_place=False)
    operation = native.prepare(case)
    assert wrong_values(case, operation, turn=6) == 0
    operation.ready()
    assert len(operation.block(500).samples) == 500
    assert wrong_values(case, operation, turn=7) == 0


def test_the_runs_one_by_one_add_up_to_the_one_figure_of_all(native: Native):
    native.reserve(512 * MIB)
    operation = native.prepare(Case("all_reduce", "float32", 256 * MIB, "sum", in_place=False))
    blocks = [operation.block(100) for _ in range(5)]
    ratios = [statistics.median(block.samples) / block.mean for block in blocks]
    assert 0.9 < statistics.median(ratios) < 1.1
    native.reserve(16 * MIB)


@contextmanager
def watched_memory() -> Iterator[list[int]]:
    """Yields a list of the GPU's free memory, polled inside the `with` block."""
    free, end = [_native.cuda().memory_info(DEVICE)[0]], threading.Event()

    def look() -> None:
        while not end.wait(0.001):
            free.append(_native.cuda().memory_info(DEVICE)[0])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield free
    finally:
        end.set()
        thread.join()


def test_the_peak_is_two_buffers_and_no_more_than_64_mib_beyond():
    size = 1024 * MIB
    native = make()
    every = [c.case("float32", size, "sum", 1) for c in COLLECTIVES.values()]
    # The first runs allocate what NCCL and CUDA keep (kernels, channels).
    for case in (c.case("float32", MIB, "sum", 1) for c in COLLECTIVES.values()):
        native.prepare(case).once()
    native.reserve(0)
    before = _native.cuda().memory_info(DEVICE)[0]
    with watched_memory() as free:
        native.reserve(2 * size)
        for case in every:
            operation = native.prepare(case)
            assert wrong_values(case, operation, turn=8) == 0
            operation.block(3)
    assert before - min(free) <= 2 * size + 64 * MIB
    del operation
    native.close()


def test_memory_that_the_gpu_has_not_is_an_error_and_the_rest_works_on(native: Native):
    _, total = _native.cuda().memory_info(DEVICE)
    with pytest.raises(OddrankError):
        native.reserve(2 * total)
    native.reserve(16 * MIB)
    case = Case("all_reduce", "float32", 4096)
    assert wrong_values(case, native.prepare(case), turn=9) == 0


def test_a_block_that_does_not_end_in_time_says_which_run_and_aborts(source):
    (late, after), _ = in_process(source)
    assert "did not end before the deadline, the communicator was aborted" in late
    assert " of 10000 did not end" in late
    assert "the communicator was closed or aborted" in after


def test_where_the_other_rank_never_comes_it_ends_by_its_deadline():
    code = """
_native.load_nccl()
cuda = _native.cuda()
said = error_of(cuda.Communicator, cuda.nccl_unique_id(), 0, 2, device=0, seconds=3)
answer = [said, len(cuda.nccl_unique_id())]
"""
    (said, id_bytes), _ = in_process(code)
    assert "did not agree before the deadline" in said
    assert id_bytes == 128

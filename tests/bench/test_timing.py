"""Blocks of runs on the fake GPU: what is enqueued, what is timed, and how a hang ends.

An operation takes 5 us of the fake GPU's clock (fake_gpu.cpp).
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.fake_gpu import HERE, compiler, make_fake_gpu

# The first test compiles.
pytestmark = [pytest.mark.needs("cuda-build"), pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SOURCES = ["bench/nccl/*.cpp", "cuda/runtime.cpp"]
RUN_US = 5.0
# A deadline in ms that comes only after all that ends before it, also on a busy machine.
LATE = 6000


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    fake, made = make_fake_gpu(folder), folder / "drive_operation"
    sources = [file for pattern in SOURCES for file in (ROOT / "csrc").glob(pattern)]
    program = [HERE / "drive_operation.cpp", *sources, fake, "-ldl", f"-Wl,-rpath,{folder}"]
    subprocess.run([*compiler(), f"-I{ROOT}/csrc", *program, "-o", made], check=True)
    return made


def drive(driver: Path, **options: int) -> dict[str, Any]:
    done = subprocess.run(
        [driver, *(f"{name}={value}" for name, value in options.items())],
        env={**os.environ, "ODDRANK_NCCL_LIBRARY": str(driver.with_name("libnccl.so.2"))},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 65, 1000, 4096, 4097, 9000])
def test_a_block_times_every_run(driver: Path, n: int):
    seen = drive(driver, n=n)
    assert seen["said"] == ""
    assert seen["values"] == n
    assert seen["low"] == seen["high"] == pytest.approx(RUN_US, rel=1e-3)
    assert seen["mean"] == pytest.approx(RUN_US, rel=1e-3)


@pytest.mark.parametrize("n", [1, 32, 63, 64, 65, 1000, 9000])
def test_one_pair_of_events_around_all_gives_the_same_mean_and_no_values(driver: Path, n: int):
    seen = drive(driver, n=n, each=0)
    assert (seen["said"], seen["values"]) == ("", 0)
    assert seen["mean"] == pytest.approx(RUN_US, rel=1e-3)
    assert seen["operations"] == n + 2, "one to connect, one to fill the pipeline"


@pytest.mark.parametrize("each", [0, 1])
def test_a_bounded_number_of_runs_is_under_way(driver: Path, each: int):
    assert 32 <= drive(driver, n=5000, each=each)["most_in_flight"] <= 65


def test_runs_take_turns_over_all_windows(driver: Path):
    seen = drive(driver, n=100, windows=7)
    assert seen["places"] == 7
    assert seen["right"]


@pytest.mark.parametrize(("behind", "in_place"), [(7 * 512 + 4, 0), (4, 1)])
def test_buffers_may_begin_behind_an_aligned_address(driver: Path, behind: int, in_place: int):
    seen = drive(driver, n=100, windows=7, **{"from": 4}, behind=behind, in_place=in_place)
    assert (seen["places"], seen["right"]) == (7, True)


@pytest.mark.parametrize(
    ("behind", "in_place"),
    [(6 * 512, 0), (8 * 512, 0), (14 * 512, 0), (15 * 512, 0), (0, 0), (512, 1)],
)
def test_windows_that_would_lie_on_each_other_or_beyond_the_memory_are_refused(
    driver: Path, behind: int, in_place: int
):
    said = drive(driver, windows=7, behind=behind, in_place=in_place)["said"]
    assert f"do not fit into the {14 * 512} bytes reserved, received from byte {behind} on" in said


@pytest.mark.parametrize(("graph", "n", "launches"), [(1, 20, 20), (8, 20, 3), (8, 16, 2)])
def test_a_graph_is_launched_and_gone_before_the_communicator_ends(
    driver: Path, graph: int, n: int, launches: int
):
    seen = drive(driver, n=n, graph=graph, windows=4)
    assert seen["values"] == launches
    assert seen["low"] == seen["high"] == pytest.approx(RUN_US, rel=1e-3), "per operation"
    assert seen["graph_launches"] == launches + 1, "one more fills the pipeline"
    assert seen["graphs_at_the_end"] == 0


def test_a_run_that_hangs_on_the_gpu_is_named_and_aborted_at_the_deadline(driver: Path):
    # Operation 0 connects, operation 1 fills the pipeline: operation 138 is run 137.
    seen = drive(driver, n=1000, hangs_at=138, ms=LATE)
    assert "run 137 of 1000 did not end before the deadline, the communicator" in seen["said"]
    assert "ncclAllReduce (all_reduce, 8 bytes)" in seen["said"]
    assert seen["aborts"] == 1
    assert seen["freed_in_use"] == 0
    assert "was closed or aborted" in seen["after"]


def test_what_an_abort_does_not_end_keeps_its_memory(driver: Path):
    seen = drive(driver, n=1000, hangs_at=138, ms=LATE, survives_abort=1)
    assert "run 137 of 1000" in seen["said"]
    assert (seen["aborts"], seen["freed_in_use"]) == (1, 0)


def test_a_first_run_that_stays_inside_of_nccl_does_not_hold_us(driver: Path):
    seen = drive(driver, blocks_at=0, ms=300)
    assert "NCCL did not come back from the first run before the deadline" in seen["said"]
    assert (seen["aborts"], seen["freed_in_use"]) == (0, 0), "a thread is still in there"
    assert "was closed or aborted" in seen["after"]


def test_a_capture_that_stays_inside_of_nccl_does_not_hold_us(driver: Path):
    # Operation 0 connects; captured ones don't count.
    seen = drive(driver, graph=4, blocks_at=1, ms=LATE)
    assert "did not come back from the capture of a graph before the deadline" in seen["said"]
    assert (seen["aborts"], seen["freed_in_use"]) == (0, 0), "a thread is still in there"
    assert "was closed or aborted" in seen["after"]


@pytest.mark.parametrize("more", [{}, {"graph": 4}, {"hangs_at": 138, "ms": LATE, "n": 1000}])
def test_every_thread_that_calls_nccl_has_selected_the_gpu_first(driver: Path, more):
    seen = drive(driver, device=1, **more)
    assert (seen["aborts"] == 1) == ("hangs_at" in more)
    assert seen["wrong_device"] == 0


def test_what_nccl_s_own_threads_run_into_ends_the_wait_before_the_deadline(driver: Path):
    seen = drive(driver, n=1000, hangs_at=138, fails=1, ms=50_000)
    assert "failed with NCCL error 6" in seen["said"]
    assert seen["took"] < 25, "half of the deadline"
    assert (seen["aborts"], seen["freed_in_use"]) == (1, 0)


def test_a_communicator_that_could_not_be_split_works_too(driver: Path):
    seen = drive(driver, cannot_split=1)
    assert not seen["direct"]
    assert (seen["said"], seen["values"]) == ("", 100)


NONE, BUFFER, WINDOW = range(3)


def test_a_symmetric_window_has_whole_pages_and_is_taken_back(driver: Path):
    seen = drive(driver, n=5, register=WINDOW)
    assert (seen["said"], seen["values"]) == ("", 5)
    assert seen["windows"] == 0
    assert seen["window_bytes"] == 4096
    assert drive(driver, n=5, register=NONE)["window_bytes"] == 0


def test_where_nccl_makes_no_window_it_says_what_may_be_missing(driver: Path):
    said = drive(driver, register=WINDOW, no_window=1)["said"]
    assert "made no window" in said
    assert "NCCL_CUMEM_ENABLE=0" in said


def test_a_rank_that_never_registers_ends_the_wait_at_the_deadline(driver: Path):
    said = drive(driver, register=WINDOW, window_hangs=1)["said"]
    assert "ncclCommWindowRegister did not end before the deadline" in said


def test_an_nccl_without_windows_is_refused_in_words(driver: Path, tmp_path: Path):
    old = make_fake_gpu(tmp_path, "-DWITHOUT_WINDOWS")
    done = subprocess.run(
        [driver, f"register={WINDOW}"],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "ODDRANK_NCCL_LIBRARY": str(old)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "has no symmetric windows, 2.27 has: leave out --register window" in done.stdout

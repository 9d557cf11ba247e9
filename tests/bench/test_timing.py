"""Runs on the fake GPU (fake_gpu.cpp): what is enqueued, timed and checked, and how a hang ends."""

import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from bench.fake_gpu import HERE, compiler, make_fake_gpu
from bench.told import by_name
from golden import Golden
from patience import PATIENCE, at_once
from processes import captured

# The first test compiles, for ten seconds: not beside tests that wait for time.
pytestmark = [
    pytest.mark.whole_build, pytest.mark.needs("cuda-build"), pytest.mark.timeout(600)
]  # fmt: skip

ROOT = Path(__file__).parents[2]
CSRC, GPU_BENCHMARKS = ROOT / "csrc", ROOT / "benchmarks" / "gpu"
SOURCES = ["bench/nccl/*.cpp", "cuda/runtime.cpp"]
# Of the CUDA sources, the check's; else what it calls.
CHECKS = ["bench/verify/*.cpp", "cuda/runtime.cpp"]
RUN_US = 5.0
NONE, BUFFER, WINDOW = range(3)
# A deadline in ms that comes only after all that ends before it, also on a busy machine.
LATE = round(max(6000, PATIENCE.seconds(2000)))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    fake, made = make_fake_gpu(folder), folder / "drive_operation"
    sources = [file for pattern in SOURCES for file in CSRC.glob(pattern)]
    program = [HERE / "drive_operation.cpp", *sources, fake, "-ldl", f"-Wl,-rpath,{folder}"]
    subprocess.run([*compiler(), f"-I{CSRC}", *program, "-o", made], check=True)
    return made


def drive(driver: Path, *, nccl: Path | None = None, **options: int) -> dict[str, Any]:
    """Returns what the driver prints. nccl: another fake library than the usual one."""
    library = nccl or driver.with_name("libnccl.so.2")
    environ = {"LD_LIBRARY_PATH": str(library.parent), "ODDRANK_NCCL_LIBRARY": str(library)}
    done = captured([driver, *(f"{name}={value}" for name, value in options.items())], **environ)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_block_times_every_run_or_all_together(driver: Path):
    for n in (1, 2, 31, 32, 33, 63, 64, 65, 1000, 4096, 4097, 9000):
        each, mean = (drive(driver, n=n, each=each) for each in (1, 0))
        assert (each["said"], each["values"]) == ("", n)
        assert each["low"] == each["high"] == pytest.approx(RUN_US, rel=1e-3)
        assert each["mean"] == mean["mean"] == pytest.approx(RUN_US, rel=1e-3)
        assert (mean["said"], mean["values"]) == ("", 0), "one pair of events around all"
        assert mean["operations"] == n + 2, "one to connect, one to fill the pipeline"
        for seen in (each, mean):
            assert min(n, 32) <= seen["most_in_flight"] <= 65, "a bounded number is under way"


def test_runs_take_turns_over_all_windows(driver: Path):
    for more in ({}, {"behind": 0}):  # in place
        seen = drive(driver, n=100, windows=7, **more)
        assert (seen["places"], seen["right"]) == (7, True), more


def test_windows_on_each_other_or_beyond_the_memory_are_refused(driver: Path, golden: Golden):
    said = []
    alone = (1, 1020)  # one of 8 bytes, 4 of them in its memory
    for windows, behind in (alone, *((7, 512 * place) for place in (6, 8, 14, 15))):
        said.append(drive(driver, windows=windows, behind=behind)["said"])
    golden("\n".join(said))


def test_what_hangs_ends_by_the_deadline_and_keeps_its_memory(driver: Path, golden: Golden):
    # Operation 0 connects, operation 1 fills the pipeline: operation 138 is run 137.
    on_gpu, said = {"n": 1000, "hangs_at": 138, "ms": LATE}, {}
    cases = (
        ("a run on the GPU", {**on_gpu, "device": 1}, 1),
        ("that an abort does not end", {**on_gpu, "survives_abort": 1}, 1),
        # A thread is still in there.
        ("the first run, inside of NCCL", {"blocks_at": 0, "ms": 300}, 0),
        ("a GPU that is lost", {**on_gpu, "loses_gpu": 1}, 1),
        ("what NCCL's own threads run into", {**on_gpu, "fails": 1, "ms": 50_000}, 1),
    )
    all_seen = at_once(partial(drive, driver, **given) for _, given, _ in cases)
    for (name, _, aborts), seen in zip(cases, all_seen, strict=True):
        assert (seen["aborts"], seen["freed_in_use"]) == (aborts, 0), name
        assert seen["aborts_ended"] == aborts, name
        assert (seen["wrong_device"], seen["device"]) == (0, 0), name
        said[name] = f"{seen['said']}\n{seen['after']}"
    assert seen["took"] < 25, "half of the deadline"
    golden(by_name(said))


def test_a_communicator_that_could_not_be_split_works_too(driver: Path):
    for split in (1, 0):
        seen = drive(driver, cannot_split=1 - split, device=1)
        assert (seen["direct"], seen["said"], seen["values"]) == (split, "", 100)
        # Every thread that calls NCCL has selected the GPU first, and ours is left as it was.
        assert (seen["wrong_device"], seen["device"]) == (0, 0)


def test_a_symmetric_window_has_whole_pages_and_is_taken_back(driver: Path):
    seen = drive(driver, n=5, register=WINDOW)
    assert (seen["said"], seen["values"]) == ("", 5)
    assert (seen["windows"], seen["window_bytes"]) == (0, 4096)
    assert drive(driver, n=5, register=NONE)["window_bytes"] == 0


def test_where_nccl_makes_no_window_it_says_why(driver: Path, tmp_path: Path, golden: Golden):
    old = make_fake_gpu(tmp_path, "-DWITHOUT_WINDOWS")
    seen = [
        drive(driver, register=WINDOW, no_window=1),
        drive(driver, register=WINDOW, window_hangs=1),  # another rank never registers
        drive(driver, register=WINDOW, nccl=old),
    ]
    golden("\n".join(one["said"] for one in seen).replace(str(tmp_path), "FOLDER"))


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc", path=f"{home}/bin:{os.defpath}")
    if nvcc is None:
        pytest.skip("nvcc is needed to compile the kernels")
    folder = tmp_path_factory.mktemp("checker")
    fake, kernels, made = make_fake_gpu(folder), folder / "device.o", folder / "drive_check"
    options = ["-std=c++17", "-cudart", "none", f"-I{CSRC}", "-c", "-o", kernels]
    subprocess.run([nvcc, *options, CSRC / "bench/verify/device.cu"], check=True)
    sources = [file for pattern in CHECKS for file in CSRC.glob(pattern)]
    program = [HERE / "drive_check.cpp", kernels, *sources, fake, f"-Wl,-rpath,{folder}"]
    subprocess.run([*compiler(), f"-I{CSRC}", *program, "-o", made], check=True)
    return made


def checked(checker: Path, segments: int, checks: int, faults: int = 0) -> dict[str, int]:
    line = [str(checker), str(segments), str(checks), str(faults)]
    found: dict[str, int] = json.loads(subprocess.run(line, stdout=PIPE, check=True).stdout)
    return found


def test_many_segments_are_filled_by_one_launch_and_checked_by_one(checker: Path):
    for segments, checks, launches in ((512, 1, 2), (512, 10, 20), (1100, 1, 2 * 3)):
        seen = checked(checker, segments, checks)
        assert (seen["launches"], seen["wrong"]) == (launches, 0)
        assert (seen["allocations"], seen["streams"]) == (1, 1), "kept from call to call"


def test_a_check_waits_for_its_own_stream_alone_and_leaves_the_device_as_it_was(checker: Path):
    seen = checked(checker, 512, 1, faults=1)
    assert (seen["wrong"], seen["blocking_copies"], seen["device"]) == (512, 0, 0)

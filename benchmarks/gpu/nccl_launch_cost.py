"""Measures a small collective in our block against NCCL in a bare C loop. Goal: ratio 1.05.

One rank, 8 bytes, out of place: the time between two events around all runs, which at this size is
the cost of launching them. all_reduce of one rank is a copy on the stream, sendrecv a kernel of
NCCL. Both sides use the same kind of memory, and the same windows in turn. `distribution` also has
an event after every run.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import OddrankError, _native
from oddrank.bench.backend import offsets
from oddrank.bench.case import NO_OP, Case
from oddrank.bench.native import Native

RUNS = 5000
BYTES = 8
MEMORY = 1 << 20  # bytes of each buffer
CASES = {
    "all_reduce": Case("all_reduce", "float32", BYTES, "sum", in_place=False),
    "sendrecv": Case("sendrecv", "float32", BYTES, NO_OP, in_place=False),
}


def nvcc() -> str:
    """Finds nvcc as the build does (csrc/cmake/OddrankCuda.cmake)."""
    if given := os.environ.get("CUDACXX"):
        return given
    homes = [os.environ[name] + "/bin" for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    places = [*homes, os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"]
    found = shutil.which("nvcc", path=os.pathsep.join(places))
    if found is None:
        raise OddrankError(
            "nvcc was not found (CUDACXX, CUDA_HOME, PATH, /usr/local/cuda) to build the bare loop"
        )
    return found


def raw_loop(library: str, allocator: str) -> ctypes.CDLL:
    """Builds and opens nccl_raw_loop.cpp, with the same kind of memory as our side."""
    source = Path(__file__).with_name("nccl_raw_loop.cpp")
    headers = Path(library).parents[1] / "include"
    built = Path(tempfile.mkdtemp()) / "raw_loop.so"
    options = ["-O2", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", f"-I{headers}"]
    command = [nvcc(), *options, str(source), "-o", str(built)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except OSError as error:
        raise OddrankError(f"{command[0]} could not be run: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise OddrankError(f"nvcc could not build the bare loop: {error.stderr[-500:]}") from None
    raw = ctypes.CDLL(str(built))
    raw.raw_loop.restype = ctypes.c_double
    step = open_loop(raw, library, allocator)
    if step:
        raise OddrankError(f"the bare loop could not be set up: step {step} failed")
    return raw


def open_loop(raw: ctypes.CDLL, library: str, allocator: str) -> int:
    """Sets the loop up with the memory and windows of `Native`; returns the failed step, or 0."""
    places = offsets(BYTES, MEMORY)
    sizes = map(ctypes.c_size_t, (MEMORY, places[1], len(places)))
    step: int = raw.raw_open(library.encode(), int(allocator == "ncclMemAlloc"), *sizes)
    return step


def sides(native: Native, raw: ctypes.CDLL, name: str) -> dict[str, Any]:
    """Returns name -> function that returns microseconds a run."""
    ours = native.prepare(CASES[name])
    grouped = int(name == "sendrecv")

    def distribution() -> float:
        times: list[float] = ours._native.block(RUNS, each=True)[0]
        return sum(times) / len(times)

    def bare() -> float:
        took: float = raw.raw_loop(RUNS, grouped)
        if took < 0:
            raise OddrankError("the bare loop failed")
        return took

    found: dict[str, Callable[[], float]] = {
        "ours": lambda: ours.mean(RUNS),
        "bare": bare,
        "distribution": distribution,
    }
    for side in found.values():
        side()  # makes connections, raises the clocks
    return found


def main() -> None:
    options = harness.parser(__doc__.splitlines()[0], 21).parse_args()
    if not _native.cuda().devices():
        raise OddrankError("this benchmark needs a GPU, and the driver sees none")
    library = _native.load_nccl()
    native = Native(_native.cuda().nccl_unique_id(), 0, 1, 0)
    native.reserve(2 * MEMORY)
    raw = raw_loop(library["path"], native.allocator)
    rows = []
    for name in CASES:
        figures = harness.paired(sides(native, raw, name), options.repetitions)
        rows.append(
            {
                "collective": f"{name}, {BYTES} B",
                **{f"{side} us": harness.spread(times) for side, times in figures.items()},
                "ours / bare": harness.ratio(figures["ours"], figures["bare"]),
                "distribution / bare": harness.ratio(figures["distribution"], figures["bare"]),
            }
        )
    harness.report(
        "gpu/nccl_launch_cost", rows, options.json,
        cuda=_native.cuda().build_info, nccl=library["version_text"],
        gpu=_native.cuda().devices()[0]["name"],
    )  # fmt: skip


if __name__ == "__main__":
    harness.end(main, "nccl_launch_cost")

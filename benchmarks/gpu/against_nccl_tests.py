"""Compares times of collectives with nccl-tests' times, on the GPUs of this machine.

nccl-tests' programs (all_reduce_perf, ...) are looked for in $NCCL_TESTS_HOME, its folder build/
and PATH. If $NCCL_TESTS_HOME holds only the source, they are built for the GPUs of this machine,
against the NCCL that oddrank loads. Both sides run with that NCCL, and both times are the slowest
rank's. A ratio below 1: ours is faster.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import OddrankError, _native

# Collective -> nccl-tests' program.
PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
}
SIZES = ("8", "1G", 64)
BACKEND = "nccl"
BUDGET = 60
SECONDS = 150
BUILD = 400
CUDA = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
# time, algbw, busbw, #wrong: out of place, then in place.
FIGURES = 8


def program(name: str, folder: Path) -> str:
    """Returns nccl-tests' program, built into `folder` if there is only its source."""
    home = os.environ.get("NCCL_TESTS_HOME", "")
    places = [home, f"{home}/build", str(folder)] if home else []
    path = os.pathsep.join([*places, os.environ.get("PATH", os.defpath)])
    if shutil.which(name, path=path) is None and home and Path(home, "src", "Makefile").is_file():
        build(Path(home), name, folder)
    found = shutil.which(name, path=path)
    if found is None:
        raise OddrankError(f"{name} was not found: put nccl-tests' folder into NCCL_TESTS_HOME")
    return found


def build(source: Path, name: str, folder: Path) -> None:
    """Builds one program with nccl-tests' own Makefile, which wants include/ and lib/libnccl.so."""
    nccl = folder / "nccl"
    (nccl / "lib").mkdir(parents=True, exist_ok=True)
    library = Path(_native.load_nccl()["path"])
    for link, target in ((nccl / "include", headers(library)), (nccl / "lib/libnccl.so", library)):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    codes = {"{}{}".format(*gpu["compute_capability"]) for gpu in _native.cuda().devices()}
    gencode = " ".join(f"-gencode=arch=compute_{code},code=sm_{code}" for code in sorted(codes))
    command = ["make", "-C", str(source / "src"), f"-j{os.cpu_count()}", f"BUILDDIR={folder}"]
    command += [f"NCCL_HOME={nccl}", f"NVCC_GENCODE={gencode}", "os.build", str(folder / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OddrankError(f"make of {name} failed: {said[-1] if said else 'it said nothing'}")


def headers(library: Path) -> Path:
    """Returns the folder of nccl.h: beside the library's folder in a wheel, else the system's."""
    for folder in (library.parents[1] / "include", Path("/usr/include"), CUDA / "include"):
        if (folder / "nccl.h").is_file():
            return folder
    raise OddrankError(f"nccl.h of {library} was not found: pip install nvidia-nccl-cu13")


def theirs(collective: str, gpus: int, folder: Path) -> dict[tuple[int, bool], float]:
    """Returns (size, in place) -> microseconds, from the table that nccl-tests prints."""
    low, high, factor = SIZES
    options = ["-b", low, "-e", high, "-f", str(factor), "-g", str(gpus), "-n", "200", "-w", "20"]
    options += ["-a", "3"]  # the slowest rank's time
    libraries = [str(Path(_native.load_nccl()["path"]).parent), os.environ.get("LD_LIBRARY_PATH")]
    done = subprocess.run(
        [program(PROGRAMS[collective], folder), *options],
        env={**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))},
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    found: dict[tuple[int, bool], float] = {}
    for line in done.stdout.splitlines():
        cells = line.split()
        if len(cells) > FIGURES and re.fullmatch(r"[0-9]+", cells[0]):
            for in_place, cell in ((False, cells[-FIGURES]), (True, cells[-FIGURES // 2])):
                found[int(cells[0]), in_place] = float(cell)
    if done.returncode or not found:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise OddrankError(f"{PROGRAMS[collective]} failed (exit code {done.returncode}): {said}")
    return found


def ours(collectives: Sequence[str], gpus: int) -> list[dict[str, Any]]:
    """Returns the rows of `bench run`."""
    low, high, factor = SIZES
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        run = ["bench", "run", "--collectives", ",".join(collectives)]
        run += ["--backend", BACKEND, "--sizes", f"{low}:{high}:x{factor}", "--json", str(report)]
        run += ["--budget", str(BUDGET), "--deadline", str(2 * SECONDS)]
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(gpus), "-m", "oddrank"]
        done = subprocess.run(
            [sys.executable, *launcher, *run],
            capture_output=True, text=True, timeout=3 * SECONDS, check=False,
        )  # fmt: skip
        try:
            rows: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["data"][
                "rows"
            ]
        except (OSError, ValueError, KeyError):
            said = (done.stdout + done.stderr).strip().splitlines()
            raise OddrankError(f"bench run left no report: {said[-1] if said else ''}") from None
    return rows


def main() -> None:
    options = harness.parser(__doc__.splitlines()[0], 1).parse_args()
    gpus = len(_native.cuda().devices())
    if not gpus:
        raise OddrankError("this benchmark needs a GPU, and the driver sees none")
    with tempfile.TemporaryDirectory() as folder:
        reference = {name: theirs(name, gpus, Path(folder)) for name in PROGRAMS}
    rows = []
    for row in ours(tuple(PROGRAMS), gpus):
        time = row["mean_us"]
        other = reference[row["collective"]].get((row["bytes"], row["inplace"]))
        if time and other:
            rows.append(
                {
                    "collective": row["collective"],
                    "bytes": row["bytes"],
                    "place": "in" if row["inplace"] else "out",
                    "ours us": time,
                    "nccl-tests us": other,
                    "ours / nccl-tests": time / other,
                }
            )
    if not rows:
        raise OddrankError("no size was measured by both sides")
    harness.report("gpu/against_nccl_tests", rows, options.json, gpus=gpus)


if __name__ == "__main__":
    harness.end(main, "against_nccl_tests")

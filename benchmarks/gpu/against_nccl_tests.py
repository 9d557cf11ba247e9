"""Compares times of collectives with those of nccl-tests, on the GPUs of this machine.

nccl-tests' programs (all_reduce_perf, ...) are looked for in $NCCL_TESTS_HOME, its folder build/
and PATH. Both sides use the NCCL of LD_LIBRARY_PATH or the system, which may be two versions: the
report names ours. A ratio below 1: ours is faster. The first ratio of a size is out of place.
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
# time, algbw, busbw, #wrong: out of place, then in place.
FIGURES = 8


def program(name: str) -> str:
    home = os.environ.get("NCCL_TESTS_HOME", "")
    places = [home, f"{home}/build"] if home else []
    found = shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise OddrankError(f"{name} was not found: put nccl-tests' folder into NCCL_TESTS_HOME")
    return found


def theirs(collective: str, gpus: int) -> dict[tuple[int, bool], float]:
    """Returns (size, in place) -> microseconds, from the table that nccl-tests prints."""
    low, high, factor = SIZES
    options = ["-b", low, "-e", high, "-f", str(factor), "-g", str(gpus), "-n", "200", "-w", "20"]
    done = subprocess.run(
        [program(PROGRAMS[collective]), *options],
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
        run = ["bench", "run", "--collectives", ",".join(collectives), "--place", "both"]
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
    reference = {name: theirs(name, gpus) for name in PROGRAMS}
    rows = []
    for row in ours(tuple(PROGRAMS), gpus):
        time = row.get("mean_us") or row["median_us"]
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

<<<<<<< HEAD
"""Feeds RUNS changed inputs to each parser of texts, reports crashes and leaks. For `make fuzz`.

Takes each program fuzz_* that .ci/build-fuzzer built, but that of records, which has its own. Words
for a program are in tests/<subject>/fuzz_words.dict, where there is such a file.
"""

=======
"""Feeds changed dumps to the readers of flight-recorder dumps, and reports crashes and slow inputs.

.ci/build-fuzzer PYTHON FOLDER fuzzer has built the target; what is found lies in FOLDER/found.
"""

import os
import pickle
>>>>>>> 0ff3d50 (Say which of two different calls a group usually issues; fuzz the readers of dumps)
import re
import subprocess
import sys
import time
<<<<<<< HEAD
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

ROOT = Path(__file__).parents[2]
LARGEST = 2048  # bytes of an input
MEMORY = 1024  # MiB
OWN = {"fuzz_reader", "fuzz_seeds"}


def sources() -> dict[str, Path]:
    return {path.stem: path for path in sorted(ROOT.glob("tests/*/fuzz_*.cpp"))}


def run(program: Path, source: Path, folder: Path, runs: int) -> dict[str, Any]:
    """Returns the row of one program; prints what it says if it fails."""
    corpus = folder / f"corpus-{program.name}"
    corpus.mkdir(exist_ok=True)
    words = source.with_name("fuzz_words.dict")
    command = [
        program,
        f"-runs={runs}",
        f"-max_len={LARGEST}",
        f"-rss_limit_mb={MEMORY}",
        "-timeout=10",
        "-print_final_stats=1",
        f"-artifact_prefix={folder}/found/{program.name}-",
        *([f"-dict={words}"] if words.exists() else []),
        corpus,
    ]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    seconds = time.monotonic() - began
    executed = re.search(r"number_of_executed_units:\s+(\d+)", done.stderr)
    if done.returncode:
        sys.stderr.write(done.stderr[-6000:])
    return {
        "parser": program.name.removeprefix("fuzz_"),
        "runs": int(executed[1]) if executed else 0,
        "seconds": round(seconds),
        "crashes": int(done.returncode != 0),
    }


def main() -> None:
    arguments = harness.parser(str(__doc__))
    arguments.add_argument("folder", type=Path, help="where .ci/build-fuzzer has built them")
    arguments.add_argument("--runs", type=int, default=10_000_000)
    options = arguments.parse_args()
    folder = options.folder.resolve()
    (folder / "found").mkdir(exist_ok=True)
    rows = [
        run(folder / "tests" / name, source, folder, options.runs)
        for name, source in sources().items()
        if name not in OWN and (folder / "tests" / name).exists()
    ]
    harness.report("triage_fuzz", rows, options.json, date=date.today().isoformat())
    if not rows or any(row["crashes"] for row in rows):
=======
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from synthetic import FAULTS, Hang, Job, Options

import harness

LARGEST = 32768
MEMORY = 2048  # MiB
SEPARATOR = b"\xff\x00\xff\x00"


def seeds(folder: Path) -> None:
    """Writes dumps of two ranks that hang with each fault, in all forms."""
    for fault, as_json in product(FAULTS, (False, True)):
        hang = Hang(Job(2, 2, 2, 1, microbatches=1), fault, rank=1)
        for frames in (0, 2):
            options = Options(buffer=12, frames=frames, as_json=as_json)
            dumps = [hang.dump(rank, options) for rank in (0, 1)]
            name = f"{fault}-{'json' if as_json else 'torch'}-{frames}"
            (folder / name).write_bytes(SEPARATOR.join(dumps))
            if not as_json and not frames:
                for protocol in range(6):
                    made = [pickle.dumps(pickle.loads(dump), protocol) for dump in dumps]
                    (folder / f"{fault}-{protocol}").write_bytes(SEPARATOR.join(made))


def main() -> None:
    arguments = harness.parser(str(__doc__).splitlines()[0])
    arguments.add_argument("folder", type=Path, help="where .ci/build-fuzzer has built it")
    arguments.add_argument("--runs", type=int, default=10_000_000)
    arguments.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = arguments.parse_args()
    folder = options.folder.resolve() / "flight"
    for name in ("corpus", "found", "seeds"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    seeds(folder / "seeds")
    began = time.monotonic()
    workers = []
    for worker in range(options.workers):
        log = (folder / f"worker-{worker}.log").open("wb")
        command = [
            options.folder / "tests" / "fuzz_flight",
            f"-runs={-(-options.runs // options.workers)}",
            f"-max_len={LARGEST}",
            f"-rss_limit_mb={MEMORY}",
            "-timeout=60",
            "-print_final_stats=1",
            f"-seed={worker + 1}",
            f"-artifact_prefix={folder}/found/{worker}-",
            folder / "corpus",
            folder / "seeds",
        ]
        workers.append(subprocess.Popen(command, stdout=log, stderr=log))
    codes = [worker.wait() for worker in workers]
    seconds = time.monotonic() - began
    logs = [
        (folder / f"worker-{worker}.log").read_text(errors="replace")
        for worker in range(options.workers)
    ]
    runs = sum(int(found) for log in logs for found in re.findall(r"executed_units: +(\d+)", log))
    row = {
        "runs": runs,
        "seconds": round(seconds),
        "runs per second": round(runs / seconds),
        "crashes": sum(code != 0 for code in codes),
        "peak MiB": max(
            (int(m) for log in logs for m in re.findall(r"peak_rss_mb: +(\d+)", log)), default=0
        ),
    }
    harness.report("triage_fuzz", [row], options.json, workers=options.workers)
    for code, log in zip(codes, logs, strict=True):
        if code != 0:
            sys.stderr.write(log[-6000:])
    if row["crashes"]:
>>>>>>> 0ff3d50 (Say which of two different calls a group usually issues; fuzz the readers of dumps)
        sys.exit(f"found: {sorted(path.name for path in (folder / 'found').iterdir())}")


if __name__ == "__main__":
    main()

"""Feeds RUNS changed inputs to each parser of texts, reports crashes and leaks. For `make fuzz`.

Takes each program fuzz_* that .ci/build-fuzzer built, but that of records, which has its own. Words
for a program are in tests/<subject>/fuzz_words.dict, where there is such a file.
"""

import re
import subprocess
import sys
import time
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
        sys.exit(f"found: {sorted(path.name for path in (folder / 'found').iterdir())}")


if __name__ == "__main__":
    main()

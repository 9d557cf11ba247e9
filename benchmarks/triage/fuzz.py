"""Feeds RUNS changed inputs to each parser of logs, stacks and dumps; reports crashes.

For `make fuzz`. The first inputs are dumps of synthetic.py, and lines of fuzz_words.dict beside the
targets, which are the words of the fuzzer as well.
"""

import ast
import pickle
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from synthetic import FAULTS, Hang, Options
from synthetic_job import Job

import harness

ROOT = Path(__file__).parents[2]
# Bytes of an input, at most. Dumps of six entries have 2 to 4 thousand; a prefix is of one line.
LARGEST = {"fuzz_flight": 12_288, "fuzz_pickle": 6144, "fuzz_json": 8192, "fuzz_prefixes": 512}
USUAL = 4096
MEMORY = 1024  # MiB
SUBJECTS = ("logs", "metrics", "triage")
BETWEEN_RANKS = b"\xff\x00\xff\x00"  # as fuzz_flight.cpp has it


def sources() -> dict[str, Path]:
    found = (path for each in SUBJECTS for path in (ROOT / "tests" / each).glob("fuzz_*.cpp"))
    return {path.stem: path for path in sorted(found)}


def words(source: Path) -> list[bytes]:
    """Returns the words of a subject, which libFuzzer writes almost as Python does."""
    file = source.with_name("fuzz_words.dict")
    lines = [line for line in file.read_text().splitlines() if line.startswith('"')]
    return [ast.literal_eval("b" + line) for line in lines]


def dumps() -> Iterator[tuple[bytes, bytes]]:
    """Yields dumps of two ranks of jobs that hang: pickles and JSON, with stacks and without."""
    shapes = (Job(2, 1, 2, 1, 2, 1), Job(1, 2, 2, 2, 2, 1))
    for seed, fault in enumerate(FAULTS):
        for as_json in (False, True):
            for job in shapes:
                options = Options(buffer=6, as_json=as_json, frames=2 * (seed % 2))
                try:
                    hang = Hang(job, fault, seed=seed)
                except SystemExit:  # no place for this fault in so small a job
                    continue
                yield hang.dump(0, options), hang.dump(1, options)


def seeds(program: str, source: Path) -> Iterator[bytes]:
    if program == "fuzz_flight":
        yield from (one + BETWEEN_RANKS + two for one, two in dumps())
    elif program in ("fuzz_pickle", "fuzz_json"):
        wanted = [one for one, _ in dumps() if (one[:1] == b"{") == (program == "fuzz_json")]
        yield from wanted
        if program == "fuzz_pickle":
            # Python's own pickles have the opcodes that torch does not write.
            data = {"version": "2.10", "entries": [(1, -2.5, "é", b"b", True, None, 1 << 70, ())]}
            yield from (pickle.dumps(data, protocol) for protocol in (0, 2, 4, 5))
    else:
        chance = random.Random(1)
        known = words(source)
        yield from known
        yield from (b"".join(chance.choices(known, k=12)) for _ in range(64))


def run(program: Path, source: Path, folder: Path, runs: int, seconds: int) -> dict[str, Any]:
    """Returns the row of one program; prints its output if it fails."""
    corpus, first = (folder / f"{kind}-{program.name}" for kind in ("corpus", "seeds"))
    for place in (corpus, first):
        place.mkdir(exist_ok=True)
    for number, seed in enumerate(seeds(program.name, source)):
        (first / str(number)).write_bytes(seed)
    dictionary = source.with_name("fuzz_words.dict")
    command = [
        program,
        f"-runs={runs}",
        f"-max_total_time={seconds}",
        f"-max_len={LARGEST.get(program.name, USUAL)}",
        f"-rss_limit_mb={MEMORY}",
        "-timeout=25",  # wall time, longer on a busy machine
        "-print_final_stats=1",
        f"-artifact_prefix={folder}/found/{program.name}-",
        f"-dict={dictionary}",
        corpus,
        first,
    ]
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.stderr.write(done.stderr[-6000:])

    def last(pattern: str) -> int:
        found = re.findall(pattern, done.stderr)
        return int(found[-1]) if found else 0

    return {
        "parser": program.name.removeprefix("fuzz_"),
        "runs": last(r"number_of_executed_units:\s+(\d+)"),
        "seconds": round(wall),
        "CPU seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime),
        "edges": last(r"cov: (\d+)"),
        "peak MiB": last(r"peak_rss_mb:\s+(\d+)"),
        "crashes": int(done.returncode != 0),
    }


def main() -> None:
    arguments = harness.parser(str(__doc__))
    arguments.add_argument("folder", type=Path, help="where .ci/build-fuzzer has built them")
    arguments.add_argument("--runs", type=int, default=10_000_000)
    arguments.add_argument("--seconds", type=int, default=0, help="end each after so many")
    arguments.add_argument("--only", nargs="+", metavar="NAME", help="these: flight, stacks, ...")
    options = arguments.parse_args()
    folder = options.folder.resolve()
    (folder / "found").mkdir(exist_ok=True)
    chosen = {
        name: source
        for name, source in sources().items()
        if not options.only or name.removeprefix("fuzz_") in options.only
    }
    rows = [
        run(folder / "tests" / name, source, folder, options.runs, options.seconds)
        for name, source in chosen.items()
    ]
    harness.report("triage_fuzz", rows, options.json, date=date.today().isoformat())
    if not rows or any(row["crashes"] for row in rows):
        sys.exit(f"found: {sorted(path.name for path in (folder / 'found').iterdir())}")


if __name__ == "__main__":
    main()

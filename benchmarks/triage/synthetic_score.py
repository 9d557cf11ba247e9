"""Scores oddrank triage on the flight-recorder dumps of large jobs that hang, whose truth is known.

Each case is a job of synthetic.py with one fault, a part of its dumps missing, some cut off, and
hosts whose clocks are off by seconds. It counts as right, wrong or unknown as in hangs.py.
"""

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from hang_score import OUTCOMES, Named, judge, named_in
from synthetic import Hang, Options
from synthetic_job import FAULTS, Fault, Job, Truth

import harness
from oddrank import OddrankError
from oddrank.inputs import Notes, files
from oddrank.triage import report
from oddrank.triage.facts import ranks

JOBS = {
    job.world: job
    for job in (
        Job(2, 2, 4, 2), Job(2, 4, 8, 4), Job(4, 4, 16, 4), Job(8, 8, 16, 8), Job(8, 16, 32, 8),
        Job(8, 16, 128, 8),
    )
}  # fmt: skip
# From so many ranks on the command is called, which shows its own time and memory.
LARGE = 4096
HARM = Options(missing=0.3, truncated=0.05, skew=5.0)


def answer(folder: Path) -> list[Named]:
    """Returns the ranks that triage names with at least medium confidence."""
    notes = Notes()
    try:
        with files.opened([str(folder)], notes) as items:
            found = report.judged(items, notes)
    except OddrankError:  # no dump is left, or none that can be read
        return []
    return [
        Named(frozenset(ranks(suspect.processes)), suspect.cause.name)
        for suspect in found.suspects
        if suspect.certainty > 0
    ]


def answer_of_command(folder: Path) -> list[Named]:
    command = [sys.executable, "-m", "oddrank", "triage", "--json", "-", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return named_in(json.loads(done.stdout or "{}"), {})


def outcome(truth: Truth, said: list[Named]) -> tuple[str, bool]:
    """Returns right, wrong or unknown, and whether the cause is one that fits."""
    allowed = {
        "ranks": truth.ranks,
        "accept": truth.ranks,
        "accept_cycle": truth.cycle,
        "kinds": truth.causes,
    }
    return judge(allowed, said)


def case(
    job: Job, fault: Fault, seed: int, options: Options = HARM
) -> tuple[Truth, list[Named], float, float]:
    """Returns the truth of one job, the ranks that triage names, and the seconds of both steps."""
    folder = Path(tempfile.mkdtemp(prefix="oddrank-synthetic-"))
    try:
        began = time.perf_counter()
        truth = Hang(job, fault, seed=seed).write(folder / "dumps", options)
        made = time.perf_counter()
        said = (answer_of_command if job.world >= LARGE else answer)(folder / "dumps")
        return truth, said, made - began, time.perf_counter() - made
    finally:
        shutil.rmtree(folder)


def options_of(seed: int) -> Options:
    """Every third job dumps JSON, every fourth only open operations."""
    more = {"as_json": seed % 3 == 2, "active_only": seed % 4 == 3}
    return Options(**{**asdict(HARM), **more})


def row(world: int, fault: Fault, seeds: range) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    kinds = 0
    slowest = 0.0
    process = resource.RUSAGE_CHILDREN if world >= LARGE else resource.RUSAGE_SELF
    before = resource.getrusage(process)
    for seed in seeds:
        truth, said, _, seconds = case(JOBS[world], fault, seed, options_of(seed))
        what, kind = outcome(truth, said)
        counts[what] += 1
        kinds += kind
        slowest = max(slowest, seconds)
        if what == "wrong":
            named = [(one.cause, sorted(one.ranks)[:8]) for one in said]
            print(f"wrong: {world} ranks, {fault}, seed {seed}: {truth.ranks} said {named}")
    after = resource.getrusage(process)
    return {
        "ranks": world,
        "fault": fault,
        "cases": len(seeds),
        **{name: counts[name] for name in OUTCOMES if name != "failed"},
        "right kind": kinds,
        "slowest s": round(slowest, 2),
        "CPU s a case": round((after.ru_utime - before.ru_utime) / len(seeds), 2),
        "peak MiB": after.ru_maxrss // 1024,
    }


def main() -> None:
    arguments = harness.parser(str(__doc__))
    arguments.add_argument("--ranks", type=int, nargs="+", choices=JOBS, default=[16, 64, 256])
    arguments.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    arguments.add_argument("--seeds", type=int, default=20)
    arguments.add_argument("--first-seed", type=int, default=0)
    options = arguments.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    rows = [row(world, fault, seeds) for world in options.ranks for fault in options.faults]
    harness.report(
        "triage_synthetic", rows, options.json, harm=json.loads(json.dumps(asdict(HARM)))
    )


if __name__ == "__main__":
    main()

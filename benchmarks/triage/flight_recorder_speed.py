"""Judges the flight-recorder dumps of large jobs: seconds, memory, whether it names the culprit.

synthetic.py makes the dumps, written to a folder that is deleted afterwards. Ranks of one pipeline
stage share the bytes of their entries, which saves minutes of writing; all other parts are their
own. Each reading is a process of its own, and files are in the page cache.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from synthetic import Hang, Options
from synthetic_job import Job

import harness

# Name, shape of the job, entries of a dump, depth of their stacks.
SIZES = {
    "1024": (Job(8, 8, 16, 8), 2000, 0),
    "1024-stacks": (Job(8, 8, 16, 8), 2000, 15),
    "10240": (Job(8, 8, 160, 8), 2000, 0),
}
CULPRIT = 77
READ = """
import gc, json, resource, sys, time
from pathlib import Path
from oddrank.triage import verdict
from oddrank.inputs import HEAD, Item, Notes
from oddrank.triage.evidence import flight_recorder
from oddrank.triage.view import view
gc.disable()  # as the command does
items = []
for path in sorted(Path(sys.argv[1]).iterdir()):
    with path.open("rb") as file:
        items.append(Item(path.name, path, path.stat().st_size, file.read(HEAD)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
notes = Notes()
began, cpu = time.perf_counter(), time.process_time()
facts = list(flight_recorder.read(items, notes))
seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
judging = time.process_time()
suspects = verdict.suspects(view(facts))
judging = time.process_time() - judging
named = sorted(p.rank for s in suspects for p in s.processes)
print(json.dumps([seconds, cpu, peak / 1024, before / 1024, len(facts), judging, named]))
"""
_STATUS = b"X\x09\x00\x00\x00pg_status"


def write(folder: Path, job: Job, entries: int, frames: int) -> int:
    """Writes the dumps of a job in which CULPRIT's GPU stopped. Returns their bytes."""
    hang = Hang(job, "gpu", CULPRIT, seed=1)
    options = Options(buffer=entries, frames=frames)
    short = Options(buffer=1)
    tails: dict[Any, bytes] = {}
    total = 0
    for rank in range(job.world):
        # Ranks that have come equally far in equal programs have equal entries.
        kind = (rank // (job.world // job.pp), hang.position(rank))
        if kind not in tails:
            tails[kind] = hang.dump(rank, options).partition(_STATUS)[2]
        head = hang.dump(rank, short).partition(_STATUS)[0]
        content = head + _STATUS + tails[kind]
        (folder / f"_dump_{rank}").write_bytes(content)
        total += len(content)
    return total


def measure(name: str, repetitions: int) -> dict[str, Any]:
    job, entries, frames = SIZES[name]
    folder = Path(tempfile.mkdtemp(prefix="oddrank-flight-"))
    try:
        total = write(folder, job, entries, frames)
        runs = []
        for _ in range(repetitions + 1):
            command = [sys.executable, "-c", READ, str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout))
    finally:
        shutil.rmtree(folder)
    measured = runs[1:]
    named = measured[0][6]
    seconds = [run[0] for run in measured]
    return {
        "job": name,
        "dumps": job.world,
        "entries": job.world * entries,
        "MB": round(total / 1e6),
        "seconds to read": harness.spread([round(s, 3) for s in seconds]),
        "CPU seconds to read": round(statistics.median(run[1] for run in measured), 3),
        "and to judge": round(statistics.median(run[5] for run in measured), 3),
        "ns per entry": round(statistics.median(seconds) / (job.world * entries) * 1e9),
        "peak MiB": round(max(run[2] for run in measured)),
        "MiB before": round(max(run[3] for run in measured)),
        "facts": measured[0][4],
        "named": len(named),
        "right": named == [CULPRIT],
    }


def main() -> None:
    arguments = harness.parser(str(__doc__).splitlines()[0], default_repetitions=5)
    arguments.add_argument("--jobs", nargs="+", choices=SIZES, default=["1024", "1024-stacks"])
    options = arguments.parse_args()
    rows = [measure(name, options.repetitions) for name in options.jobs]
    harness.report("triage_flight_recorder", rows, options.json)


if __name__ == "__main__":
    main()

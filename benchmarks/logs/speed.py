"""How fast are logs scanned, split and merged, and in how much memory?

A log of 64 ranks behind torchrun's prefixes, made here. Gigabytes a second of CPU of one core, and
the process's peak memory, in a process of its own for each. Splitting writes every byte: its floor
is a copy of the file by read() and write() in blocks of 1 MiB.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

_BLOCK = 100_000
_STEPS = """
import json, os, resource, sys, time
from contextlib import suppress
from pathlib import Path
from oddrank import _native
from oddrank.inputs import Notes
from oddrank.triage.evidence import log_lines
from oddrank.logs import sources, writing
log, out, what = sys.argv[1:]
_native.core()
logs = [log] if what != "merge" else sorted(map(str, Path(log).parent.glob("part*.log")))

def copy():
    with open(log, "rb", buffering=0) as source, open(out, "wb", buffering=0) as target:
        while chunk := source.read(1 << 20):
            target.write(chunk)

def work():
    if what == "copy":
        copy()
    elif what == "scan":
        needles = [needle for words in log_lines.WORDS.values() for needle in words]
        _native.core().scan_lines(os.fsencode(log), needles)
    elif what == "split":
        writing.split(opened, writing.empty_folder(out), strip=False)
    else:
        with open(out, "wb") as file:
            writing.merge(opened, file.fileno(), strip=False, clean=False)

with sources.opened(logs, Notes()) as opened:  # who is who is known before: a scan by itself
    began = time.process_time()
    work()
    seconds = time.process_time() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
print(json.dumps([seconds, peak]))
"""


def training(step: int) -> str:
    second = step // 64 % 86_400
    time = f"2026-01-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return (
        f"[default{step % 8}]:[rank{step % 64}]: {time},{step % 1000:03d} INFO iteration {step:8d}/"
        f" 100000 | consumed samples: {step * 64:12d} | lm loss: {2 + step % 7}.123456E+00 |\n"
    )


def write(path: Path, size: int, line: Callable[[int], str]) -> None:
    text = "".join(map(line, range(_BLOCK)))
    with path.open("w") as file:
        for _ in range(max(size // len(text), 1)):
            file.write(text)


def main() -> None:
    arguments = harness.parser(str(__doc__), default_repetitions=3)
    arguments.add_argument("--mib", type=int, default=1024, help="size of the log")
    options = arguments.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "job.log")
        write(log, options.mib << 20, training)
        size = log.stat().st_size
        for part in range(8):
            write(Path(folder, f"part{part}.log"), size // 8, training)
        for what in ("copy", "scan", "split", "merge"):
            rates, peaks = [], []
            for number in range(options.repetitions):
                out = Path(folder, f"{what}{number}")
                done = subprocess.run(
                    [sys.executable, "-c", _STEPS, log, out, what], capture_output=True, text=True,
                    check=True, env=dict(os.environ),
                )  # fmt: skip
                seconds, peak = json.loads(done.stdout)
                rates.append(size / seconds / 1e9)
                peaks.append(peak)
                subprocess.run(["rm", "-rf", out], check=True)
            rows.append({
                "what": what, "MiB": size >> 20, "GB per CPU second": harness.spread(rates),
                "peak MiB": max(peaks),
            })  # fmt: skip
    harness.report("logs_speed", rows, options.json)


if __name__ == "__main__":
    main()

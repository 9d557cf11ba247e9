"""Measures how fast a record becomes text for Perfetto, alone and with gzip at two levels.

One process calls and returns until its ring (32 MiB of record) is full; then its file is exported
again and again. Figures are exported events per second of one core's CPU time.
"""

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import _native
from oddrank.trace import export, jobs

SCRIPT = """
import oddrank
oddrank.arm(overhead=None)

def forward_pass_of_a_layer(n):
    return n

def training_step(n):
    for i in range(8):
        forward_pass_of_a_layer(i)

for n in range(60_000):
    training_step(n)
"""


def make_record(folder: str) -> Path:
    script = Path(folder) / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "ODDRANK_DIR": folder, "ODDRANK_TRACE_MB": "32"}
    subprocess.run([sys.executable, script], env=environment, check=True, timeout=300)
    return jobs.find([str(next(path.parent for path in Path(folder).rglob("*.trace")))]).files[0]


def text_speed(file: Path, lines: bool) -> float:
    record = _native.core().TraceExport(str(file))
    facts = _native.core().trace_snapshot(str(file))
    begin = time.process_time()
    record.start(1, facts["begin_ns"], facts["clocks"], lines, {})
    while record.chunk():
        pass
    return record.events / (time.process_time() - begin)


def file_speed(file: Path, target: Path) -> float:
    begin = time.process_time()
    return export.export([file], target).events / (time.process_time() - begin)


def main() -> None:
    arguments = harness.parser(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = make_record(folder)
        target = Path(folder) / "out.json.gz"
        sides = {
            "text of calls": partial(text_speed, file, False),
            "text of calls and lines": partial(text_speed, file, True),
            "file, gzip level 1": partial(file_speed, file, target),
        }
        figures = harness.paired(sides, arguments.repetitions)
    millions = {name: [value / 1e6 for value in values] for name, values in figures.items()}
    rows = [
        {"what": name, "M events/s": harness.spread(values)} for name, values in millions.items()
    ]
    harness.report("export_speed", rows, arguments.json)


if __name__ == "__main__":
    main()

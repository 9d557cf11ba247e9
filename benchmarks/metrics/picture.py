"""Draws examples/metrics.png: a simulated training with a restart, a spike and a slower node.

python benchmarks/metrics/picture.py examples/metrics.png
"""

import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from simulated_training import Fault, Row, Training, megatron


def rows() -> list[Row]:
    """Returns 1,400 iterations; after 600 the job dies, and goes on from 500."""
    whole = Training(4, Fault("spike", 2.2, at=0.2), rows=1400)
    whole.interval, whole.step_s, whole.lengths, whole.outliers = 1, 21.0, 0.0, 0.003
    whole.scaled = whole.grows = whole.planned = False
    whole.form, whole.evaluate, whole.checkpoint = "megatron", 250, 100
    made = list(whole.each())
    first = [replace(row, before=list(row.before)) for row in made[:600]]
    again, late = made[500:], timedelta(hours=1.5) + (made[600].time - made[500].time)
    for row in again:
        slower = 1.09 if row.iteration >= 1050 else 1.0
        row.loss *= 1 + whole.chance.gauss(0, 0.006)
        row.step_s, row.tflops = row.step_s * slower, row.tflops / slower
    for row in again:
        row.time += late
    again[0].before.append("[before the start of training step] datetime: 2026-01-01")
    return first + again


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "main_log.txt")
        with log.open("w") as file:
            for row in rows():
                file.writelines(f"{line}\n" for line in (*row.before, *megatron(row)))
        command = [sys.executable, "-m", "oddrank", "metrics", str(log), "--plot", sys.argv[1]]
        subprocess.run(command, check=False)


if __name__ == "__main__":
    main()

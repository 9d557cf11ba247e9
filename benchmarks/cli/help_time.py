"""Measures how long `oddrank --help` takes, beside Python itself and click.

Each side is a new interpreter; figure: milliseconds from start to exit. Target: help <= 80 ms.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

SIDES = {
    "python": ["-c", ""],
    "import click": ["-c", "import click"],
    "oddrank --help": ["-m", "oddrank", "--help"],
    "import rich.console (not loaded by --help)": ["-c", "import rich.console"],
}


def milliseconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    arguments = harness.parser(__doc__ or "", default_repetitions=15).parse_args()
    sides: dict[str, Callable[[], float]] = {
        name: partial(milliseconds, side) for name, side in SIDES.items()
    }
    for side in sides.values():
        side()  # byte code written, files in the page cache
    figures = harness.paired(sides, arguments.repetitions)
    rows = [
        {
            "command": name,
            "ms (min / median / max)": harness.spread(values),
            "over python": harness.ratio(values, figures["python"]),
        }
        for name, values in figures.items()
    ]
    harness.report("help_time", rows, arguments.json)


if __name__ == "__main__":
    main()

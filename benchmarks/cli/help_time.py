"""Measures how long oddrank takes to start: its help, and `oddrank triage` of a short log.

Each side is a new interpreter; figure: milliseconds of CPU time (user and system) from start to
exit, with byte code written. Targets: --help 80 ms, triage --help 120 ms.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

LOG = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
ValueError: boom
"""
SIDES = {
    "python": ["-c", ""],
    "import oddrank": ["-c", "import oddrank"],
    "import click": ["-c", "import click"],
    "oddrank --help": ["-m", "oddrank", "--help"],
    "oddrank triage --help": ["-m", "oddrank", "triage", "--help"],
    "oddrank triage of a log of 4 lines": ["-m", "oddrank", "triage", "--fail-on", "none", "LOG"],
    "import rich.console (not loaded by --help)": ["-c", "import rich.console"],
}


def milliseconds(arguments: list[str]) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, env=environment
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return (used.ru_utime + used.ru_stime) * 1e3


def main() -> None:
    arguments = harness.parser(__doc__ or "", default_repetitions=15).parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        log.write(LOG)
        log.flush()
        sides: dict[str, Callable[[], float]] = {
            name: partial(milliseconds, [log.name if word == "LOG" else word for word in side])
            for name, side in SIDES.items()
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

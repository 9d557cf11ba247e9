"""Measures the CPU time of a forked child until its next line, on this Python, in ms.

The child's first event makes its record; it comes from threading's handlers, within the fork.
`unarmed`: without the recorder. `alone`: one child after the other. `beside`: beside 64 living
children that have records, as DataLoader workers do.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
import oddrank

BESIDE = 64


def first_event() -> float:
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(into, str(time.process_time_ns()).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as said:
        nanoseconds = int(said.read())
    os.waitpid(pid, 0)
    return nanoseconds / 1e6


@contextmanager
def siblings(count: int) -> Iterator[None]:
    """Starts children that record and wait."""
    hold, release = os.pipe()
    ready, tell = os.pipe()
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(release)
            os.write(tell, b".")
            os.read(hold, 1)
            os._exit(0)
        pids.append(pid)
    for _ in range(count):
        os.read(ready, 1)
    try:
        yield
    finally:
        os.close(release)
        for pid in pids:
            os.waitpid(pid, 0)
        for end in (hold, ready, tell):
            os.close(end)


def row(name: str, measure: Callable[[], float], repetitions: int) -> dict[str, object]:
    return {"children": name, "ms": harness.spread([measure() for _ in range(repetitions)])}


def main() -> None:
    parser = harness.parser(__doc__ or "", default_repetitions=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.environ["ODDRANK_DIR"] = folder
        rows = [row("unarmed", first_event, arguments.repetitions)]
        with oddrank.arm():
            rows.append(row("alone", first_event, arguments.repetitions))
            with siblings(BESIDE):
                rows.append(row("beside", first_event, arguments.repetitions))
    harness.report("first_event", rows, arguments.json)


if __name__ == "__main__":
    main()

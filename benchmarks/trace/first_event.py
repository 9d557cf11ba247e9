"""Measures a forked child's first event: it makes the child's record. On this Python, in ms.

`alone`: one child after the other. `beside`: 64 living children that have records, as DataLoader
workers do.
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


def event() -> None:
    pass


def first_event() -> float:
    """Returns milliseconds of a recorded function's first call in a new child."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        begin = time.perf_counter_ns()
        event()
        os.write(into, str(time.perf_counter_ns() - begin).encode())
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
            event()
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
        with oddrank.arm():
            rows = [row("alone", first_event, arguments.repetitions)]
            with siblings(BESIDE):
                rows.append(row("beside", first_event, arguments.repetitions))
    harness.report("first_event", rows, arguments.json)


if __name__ == "__main__":
    main()

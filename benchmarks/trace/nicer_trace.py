"""Compares the cost of a printed line in oddrank and in a subclass of trace.Trace.

All sides run the same loop in one process; the CPU time of the untraced loop is subtracted. The
plain class prints each line, with the time before it, to stdout and to a file that it flushes;
NicerTrace writes the same text to the same two; "recorded" is oddrank.arm() alone.
"""

import datetime
import os
import sys
import tempfile
import time
import trace
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
import oddrank
import oddrank.trace

PRINTED = 20_000
LINES = 2_000_000


def loop(lines: int) -> None:
    for i in range(lines // 2):
        i + 1


class PlainTrace(trace.Trace):
    """Prints like a user's class without oddrank: one print() a line."""

    def localtrace_trace_and_count(self, frame, why, arg):
        if why == "line":
            file, line = frame.f_code.co_filename, frame.f_lineno
            self.counts[file, line] = self.counts.get((file, line), 0) + 1
            source = trace.linecache.getline(file, line)
            since = datetime.timedelta(seconds=int(time.monotonic() - self.start_time))
            print(since, end=" ")
            print(f"{os.path.basename(file)}:{line:>6}: {source}", end="")
        return self.localtrace


def cpu_seconds(work: Callable[[], object]) -> float:
    """Returns the CPU time of all threads, printing ones too, but of no other program."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def to_files(folder: Path, work: Callable[[], object]) -> float:
    """Returns CPU seconds, with stdout in a file and copied to another one."""
    before = sys.stdout
    with open(folder / "stdout", "w", encoding="utf-8") as stdout:
        sys.stdout = stdout
        sys.stdout = tee = oddrank.trace.Tee(folder / "trace.txt")
        try:
            return cpu_seconds(work)
        finally:
            sys.stdout = before
            tee.file.close()
            os.unlink(folder / "trace.txt")


def plain(folder: Path) -> float:
    tracer = PlainTrace(timing=True)
    return per_line(to_files(folder, lambda: tracer.runfunc(loop, PRINTED)), PRINTED)


def printed(folder: Path) -> float:
    tracer = oddrank.NicerTrace(timing=True, packages_to_include="uninstalled")
    return per_line(to_files(folder, lambda: tracer.runfunc(loop, LINES)), LINES)


def recorded() -> float:
    with oddrank.arm({"uninstalled": "lines", "*": "off"}, overhead=None):
        traced = cpu_seconds(lambda: loop(LINES))
    return per_line(traced, LINES)


def per_line(traced: float, lines: int) -> float:
    """Returns the nanoseconds of CPU time that tracing adds to a line."""
    bare = min(cpu_seconds(lambda: loop(LINES)) for _ in range(3)) / LINES
    return (traced / lines - bare) * 1e9


def main() -> None:
    arguments = harness.parser(__doc__.splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = harness.paired(
            {
                "plain class, printed": lambda: plain(folder),
                "NicerTrace, printed": lambda: printed(folder),
                "recorded": recorded,
            },
            arguments.repetitions,
        )
    slow = figures["plain class, printed"]
    rows = [
        {"what": what, "ns_per_line": harness.spread(ns), "times_faster": harness.ratio(slow, ns)}
        for what, ns in figures.items()
    ]
    harness.report(
        "nicer_trace", rows, arguments.json, target="recorded: median times_faster >= 300"
    )


if __name__ == "__main__":
    main()

"""After any death the record's last line is the fatal line, and its stack is whole."""

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext, suppress
from datetime import date
from pathlib import Path

import pytest

from oddrank import _native
from oddrank.trace import jobs, ranks
from patience import PATIENCE, until

PROGRAM = Path(__file__).with_name("deaths_program.py")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "trace_deaths.json"
KINDS = (
    "sigkill", "sigsegv", "abort", "exits", "out_of_memory",
    "stopped", "holds_the_gil", "in_a_callback",
)  # fmt: skip
DEEPEST = 60


def fatal_line(kind):
    lines = PROGRAM.read_text().splitlines()
    (found,) = [i for i, line in enumerate(lines, 1) if line.endswith(f"# fatal: {kind}")]
    return found


def die(kind, depth, folder, luck):
    """Runs the program to its death, or until it hangs and is killed; returns its record."""
    command = [sys.executable, str(PROGRAM), kind, str(depth)]
    with little_memory() if kind == "out_of_memory" else nullcontext([]) as joins:
        process = subprocess.Popen(
            [*joins, *command],
            env={**os.environ, "ODDRANK_DIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            if kind in ("holds_the_gil", "in_a_callback"):
                assert process.stdout.readline() == b"ready\n"
            if kind == "holds_the_gil":
                until(lambda: hangs(kind, read(folder, look=0.01).main))
            elif kind == "in_a_callback":
                time.sleep(luck.random() * 0.02)
            elif kind == "stopped":
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
                record = read(folder, look=0.05)
                assert (record.alive, record.main.state) == (True, "stopped")
            else:
                process.wait(PATIENCE.limit)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    return read(folder)


def read(folder, look=0.0):
    (record,), refused = ranks.read(jobs.find([str(folder)]).files, look)
    assert not refused
    return record


def hangs(kind, main):
    """Returns whether the process sleeps in its fatal line."""
    last = main.stack[-1]
    asleep = (main.state or "").startswith("asleep")
    return asleep and (last.function, last.line) == (kind, fatal_line(kind))


@contextmanager
def little_memory():
    """Returns a prefix that joins a memory cgroup, whose limit kills like a full node."""
    group = Path("/sys/fs/cgroup/memory") / f"oddrank-{os.getpid()}-{random.randrange(1 << 30)}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
        yield ["sh", "-c", f'echo $$ > {group}/tasks && exec "$@"', "sh"]
    finally:
        with suppress(OSError):
            group.rmdir()


def what_is_wrong(kind, depth, record):
    """Returns what is wrong in the record, "" if nothing."""
    stack = [(frame.function, frame.line) for frame in record.main.stack]
    functions = [function for function, _ in stack]
    _, events, trouble = _native.core().trace_history(record.file, 1)
    expected = ["<module>", "main", *["down"] * (depth + 1), kind]
    if record.alive or trouble or record.notes:
        return f"alive {record.alive}, {trouble}, {record.notes}"
    if functions[: len(expected)] != expected:
        return f"{functions} is not {expected}"
    if kind == "in_a_callback":
        inner = [name.replace("spin.<locals>.", "") for name in functions[len(expected) :]]
        known = ["", "spin", "spin leaf", "spin <listcomp>", "spin <listcomp> leaf"]
        return "" if " ".join(inner) in known else f"{functions} ends in nothing known"
    if stack[-1] != (kind, fatal_line(kind)):
        return f"{stack[-1]} is not line {fatal_line(kind)}"
    (event,) = events
    last = (event[2], event[3][0], event[3][2])
    return "" if last == ("line", kind, fatal_line(kind)) else f"last event {last}"


def deaths(kind, times, folder):
    luck = random.Random(f"{kind} {platform.python_version()}")
    depths = [luck.randrange(DEEPEST) for _ in range(times)]
    return [
        what_is_wrong(kind, depth, die(kind, depth, folder / str(i), luck))
        for i, depth in enumerate(depths)
    ]


def note(kind, wrong):
    """Updates this kind's row for this Python in the table of results."""
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    version = ".".join(platform.python_version_tuple()[:2])
    rows = [row for row in rows if (row["python"], row["death"]) != (version, kind)]
    right = sum(not text for text in wrong)
    rows.append({"python": version, "death": kind, "right": right, "total": len(wrong)})
    rows.sort(key=lambda row: (row["python"].zfill(5), KINDS.index(row["death"])))
    made = {"machine": platform.machine(), "date": str(date.today())}
    RESULTS.write_text(json.dumps({"machine": made, "rows": rows}, indent=1) + "\n")


@pytest.fixture(params=[
    pytest.param(kind, marks=pytest.mark.needs("memory-cgroup") if kind == "out_of_memory" else ())
    for kind in KINDS
])  # fmt: skip
def kind(request):
    return request.param


@pytest.fixture
def folder(kind, tmp_path):
    """Returns a folder for records, in memory as by default.

    On a disk the kernel writes dirty pages back; out of memory, recording an event may then kill
    the process, once in a hundred runs.
    """
    if kind != "out_of_memory":
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="oddrank-deaths-", dir="/dev/shm") as made:
        yield Path(made)


def test_the_last_line_and_the_whole_stack_survive(kind, folder):
    assert deaths(kind, 2, folder) == ["", ""]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_they_survive_every_time(kind, folder, repeats):
    wrong = deaths(kind, repeats, folder)
    note(kind, wrong)
    assert not [text for text in wrong if text]

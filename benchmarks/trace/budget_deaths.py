"""Counts deaths whose line is wrong in the record of a process that limits itself, on this Python.

A process runs `richards` until the recorder has limited it, goes on with it in a second thread,
and dies in a function that seldom runs, at a random depth. Its last line and its stack must be in
the record, or the record must say that they were sampled.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank.trace import jobs, ranks

HERE = Path(__file__).parent
NEW = sys.version_info >= (3, 12)
PROGRAM = f"""
import ctypes, os, random, signal, sys, threading, time
import oddrank
from oddrank import _native
sys.path.insert(0, {str(HERE)!r})
from budget_workloads import richards

luck = random.Random(int(sys.argv[1]))
armed = oddrank.arm()

def lowered():
    found = _native.core().trace_snapshot(armed.path)
    return found["lowered"] or found["sampled_since_ns"]

def works():
    end = time.monotonic() + 30
    while time.monotonic() < end:
        richards()

def down(depth):
    if depth:
        return down(depth - 1)
    if luck.random() < 0.5:
        richards()
    dies()

def dies():
    how = luck.randrange(4)
    if how == 0:
        os.kill(os.getpid(), signal.SIGKILL)  # fatal
    if how == 1:
        ctypes.string_at(1)  # fatal
    if how == 2:
        os.abort()  # fatal
    os._exit(3)  # fatal

end = time.monotonic() + 30
while not lowered() and time.monotonic() < end:
    richards()
if luck.random() < 0.5:
    threading.Thread(target=works, daemon=True).start()
time.sleep(luck.random() * 0.2)
down(int(sys.argv[2]))
"""


def die(number: int, folder: Path) -> str:
    """Returns the error in the record of a process that has died, "" without one."""
    depth = random.Random(number).randrange(40)
    own = folder / str(number)
    process = subprocess.run(
        [sys.executable, str(folder / "program.py"), str(number), str(depth)],
        env={**os.environ, "ODDRANK_DIR": str(own)},
        capture_output=True,
        timeout=300,
        check=False,
    )
    (record,), refused = ranks.read(jobs.find([str(own)]).files)
    lines = PROGRAM.splitlines()
    stack = record.main.stack if record.main is not None else ()
    functions = [frame.function for frame in stack]
    expected = ["<module>", *["down"] * (depth + 1), "dies"]
    for file in own.rglob("*.trace"):
        file.unlink()
    if process.returncode not in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, 3):
        return f"death {number}: {process.stderr.decode()[-500:]}"
    if record.sampled_since is not None:
        said = record.main is not None and record.main.sampled is not None
        return "" if said else f"death {number}: sampled, and not said to be"
    if NEW and (not record.lowered or refused or record.alive):
        return f"death {number}: {record.lowered}, {refused}, {record.alive}"
    if functions != expected:
        return f"death {number}: {functions} is not {expected}"
    line = stack[-1].line
    if line is None or not lines[line - 1].endswith("# fatal"):
        return f"death {number}: line {line}"
    return ""


def main() -> None:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        with ThreadPoolExecutor(arguments.at_once) as pool:
            found = list(pool.map(lambda i: die(i, folder), range(arguments.times)))
    wrong = [each for each in found if each]
    for each in wrong[:10]:
        print(each, file=sys.stderr)
    rows = [{"deaths": len(found), "wrong": len(wrong)}]
    harness.report("budget_deaths", rows, arguments.json)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

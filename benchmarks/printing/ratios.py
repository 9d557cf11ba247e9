"""Measures the cost of a whole line: printflock, a C loop, and the usual Python function.

On each side N processes, started together, append lines of 64 bytes to the same file. Figure:
seconds per line, from the start signal to the very last line. `c` = flock + write + unlock in C;
`recipe` = the Python function that opens a lock file, flocks, prints, unlocks; `print` = no lock,
flush=True.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

WRITER = """
import sys, fcntl
kind, lock, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
line = "x" * 63
if kind == "printflock":
    from oddrank import printflock as say
elif kind == "print":
    def say(line, **options):
        print(line, flush=True, **options)
else:
    def say(*args, **options):
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                print(*args, flush=True, **options)
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
say("warm", file=sys.stdout)
sys.stderr.write("r"); sys.stderr.flush()
sys.stdin.read(1)
for _ in range(count):
    say(line)
sys.stderr.write("d"); sys.stderr.flush()
"""


# Unbuffered, plain print() would write a line and its end separately.
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def run(command: list[str], writers: int, out: Path) -> float:
    """Returns the seconds from the start signal until all have written; checks the output."""
    out.unlink(missing_ok=True)
    with out.open("ab") as file:
        processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=ENVIRON,
            )
            for _ in range(writers)
        ]
    for process in processes:
        assert process.stderr is not None
        if (said := process.stderr.read(1)) != b"r":
            said += os.read(process.stderr.fileno(), 1000)
            sys.exit(f"{command[:2]} does not start: {said.decode()}")
    start = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"g")
    # Each process sends a byte after its last line: the interpreter's exit is not timed.
    said = {process.stderr.read(1) for process in processes if process.stderr is not None}
    seconds = time.perf_counter() - start
    codes = [process.wait() for process in processes]
    lines = out.read_bytes().split(b"\n")
    if any(codes) or said != {b"d"} or any(line not in {b"x" * 63, b"warm", b""} for line in lines):
        sys.exit(f"{command[:2]}: exit codes {codes} or lines that mixed")
    return seconds


def measure(
    writers: int, lines: int, repetitions: int, folder: Path, loop: Path
) -> dict[str, object]:
    lock, out = folder / "lock", folder / "out"

    def python(kind: str, count: int) -> float:
        command = [sys.executable, "-c", WRITER, kind, str(lock), str(count)]
        return run(command, writers, out) / (count * writers)

    per_writer = lines // writers
    figures = harness.paired(
        {
            "c": lambda: (
                run([str(loop), str(lock), str(per_writer)], writers, out) / (per_writer * writers)
            ),
            "printflock": lambda: python("printflock", per_writer),
            "recipe": lambda: python("recipe", per_writer // 8),
            "print": lambda: python("print", per_writer),
        },
        repetitions,
    )
    row: dict[str, object] = {"writers": writers}
    for name, values in figures.items():
        row[f"{name}_us"] = harness.spread([value * 1e6 for value in values])
    row["printflock/c"] = harness.ratio(figures["printflock"], figures["c"])
    row["recipe/printflock"] = harness.ratio(figures["recipe"], figures["printflock"])
    return row


def main() -> None:
    arguments = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--lines", type=int, default=200_000, help="per side and repetition")
    arguments.add_argument("--writers", type=int, nargs="*", default=[1, 2, 8])
    arguments.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        loop = folder / "flock_loop"
        source = Path(__file__).with_name("flock_loop.c")
        subprocess.run(["cc", "-O2", "-o", str(loop), str(source)], check=True)
        rows = [
            measure(writers, options.lines, options.repetitions, folder, loop)
            for writers in options.writers
        ]
    harness.report("printing", rows, options.json, line_bytes=64)


if __name__ == "__main__":
    main()

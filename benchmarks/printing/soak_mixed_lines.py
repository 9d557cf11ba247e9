"""Checks that lines of 1 B to 70 kB stay whole while 8 writers are killed at random (SIGKILL).

Half of the lines go through a pipe, half into a file. Every line contains its own length, so a line
is known to be whole, the beginning of one (allowed once per kill), or mixed (never allowed).
"""

import os
import random
import select
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import printflock

LONGEST = 70_000
SHORT = 26
FILLER = {letter: letter * LONGEST for letter in "abcdefghijklmnopqrstuvwxyz"}


def make_line(writer: int, number: int, size: int) -> str:
    """Returns `size` characters: up to 26, the letter of that number; else a header and letters."""
    if size <= SHORT:
        return chr(ord("A") + size - 1) * size
    head = f"{writer:08d} {number:08d} {size:05d} "
    return head + FILLER[chr(ord("a") + (writer + number) % 26)][: size - len(head) - 1] + "."


@dataclass
class Checker:
    """Reads the output in pieces and counts whole, cut, blank and mixed lines."""

    whole: int = 0
    cut: int = 0
    blank: int = 0
    mixed: int = 0
    size: int = 0
    examples: list[bytes] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    _rest: bytes = b""

    def feed(self, piece: bytes) -> None:
        self.size += len(piece)
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self.check(line)

    def end(self) -> None:
        if self._rest:
            self.check(self._rest)
        self._rest = b""

    def check(self, line: bytes) -> None:
        if not line:
            self.blank += 1
        elif self._is_whole(line):
            self.whole += 1
        elif self._is_beginning(line):
            self.cut += 1
        else:
            self.mixed += 1
            self.examples.append(line[:80] + b" ... " + line[-80:])

    def _is_whole(self, line: bytes) -> bool:
        if len(line) <= SHORT:
            return line == make_line(0, 0, len(line)).encode()
        head = line[:24].split(b" ")
        if len(head) < 3 or not all(part.isdigit() for part in head[:3]):
            return False
        writer, number, size = (int(part) for part in head[:3])
        if size != len(line) or line != make_line(writer, number, size).encode():
            return False
        # A writer's lines come in its own order.
        in_order = self.last.get(writer, -1) < number
        self.last[writer] = number
        return in_order

    def _is_beginning(self, line: bytes) -> bool:
        if set(line) <= set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
            return len(set(line)) == 1 and len(line) < SHORT
        head = line[:24].split(b" ")
        if len(head) < 4 or len(line) < 24:
            return all(part.isdigit() or not part for part in head)
        writer, number, size = (int(part) for part in head[:3])
        return make_line(writer, number, size).encode().startswith(line)


class Writers:
    """Forked writers on one descriptor. Replaces each one that is killed or has finished."""

    def __init__(self, output: int, lines: int, rng: random.Random, count: int) -> None:
        self.output, self.left, self.rng, self.count = output, lines, rng, count
        self.pids: list[int] = []
        self.started = self.kills = self.failures = 0

    def tend(self) -> bool:
        """Starts, reaps, sometimes kills. Returns False once all is written and all ended."""
        while len(self.pids) < self.count and self.left > 0:
            share = min(self.left, 1000)
            self.left -= share
            self.pids.append(self._start(share))
        for pid in list(self.pids):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.pids.remove(pid)
        if self.pids and self.left > 0 and self.rng.random() < 0.5:
            pid = self.rng.choice(self.pids)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.pids.remove(pid)
            self.kills += 1
        return bool(self.pids) or self.left > 0

    def _start(self, lines: int) -> int:
        self.started += 1
        seed = self.rng.random()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.dup2(self.output, 1)
            rng = random.Random(seed)
            for number in range(lines):
                line = make_line(self.started, number, int(LONGEST ** rng.random()))
                printflock(line, file=sys.__stdout__)
            code = 0
        finally:
            os._exit(code)


def soak_pipe(lines: int, rng: random.Random, writers: int) -> tuple[Checker, Writers]:
    source, sink = os.pipe()
    checker, crowd = Checker(), Writers(sink, lines, rng, writers)
    due = 0.0
    while True:
        if select.select([source], [], [], 0.005)[0]:
            checker.feed(os.read(source, 1 << 20))
        elif not crowd.pids and crowd.left == 0:
            break
        if time.monotonic() >= due:
            crowd.tend()
            due = time.monotonic() + 0.005
    os.close(sink)
    os.close(source)
    checker.end()
    return checker, crowd


def soak_file(lines: int, rng: random.Random, writers: int) -> tuple[Checker, Writers]:
    checker = Checker()
    with tempfile.TemporaryFile() as file:
        os.set_inheritable(file.fileno(), True)
        crowd = Writers(file.fileno(), lines, rng, writers)
        while crowd.tend():
            time.sleep(0.005)
        file.seek(0)
        while piece := file.read(1 << 22):
            checker.feed(piece)
    checker.end()
    return checker, crowd


def soak(
    lines: int, seed: int, writers: int = 8, round_lines: int = 100_000
) -> list[dict[str, object]]:
    """Returns a row per kind of output, after `lines` whole lines each."""
    rng = random.Random(seed)
    rows: list[dict[str, object]] = []
    for name, run in (("pipe", soak_pipe), ("file", soak_file)):
        row = dict.fromkeys(("whole", "cut", "blank", "mixed", "kills", "bytes"), 0)
        begin = time.monotonic()
        while row["whole"] < lines // 2:
            checker, crowd = run(min(round_lines, lines // 2 - row["whole"] + 100), rng, writers)
            for key in ("whole", "cut", "blank", "mixed"):
                row[key] += getattr(checker, key)
            row["kills"] += crowd.kills
            row["bytes"] += checker.size
            for example in checker.examples[:3]:
                sys.stderr.write(f"mixed: {example!r}\n")
        rows.append({"output": name, **row, "seconds": round(time.monotonic() - begin, 1)})
    return rows


def main() -> None:
    arguments = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--lines", type=int, default=1_000_000)
    arguments.add_argument("--writers", type=int, default=8)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    rows = soak(options.lines, options.seed, options.writers)
    harness.report("printing soak", rows, options.json, writers=options.writers, seed=options.seed)
    # A cut line without a kill is an error. A blank line may follow a line that had just ended.
    bad = any(row["mixed"] or int(str(row["cut"])) > int(str(row["kills"])) for row in rows)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

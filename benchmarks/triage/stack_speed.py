"""Times the reading and grouping of 10,000 dumps of py-spy (52 MB): single thread, CPU time.

The dumps lie in the page cache. `read and group` is the C++ reader's work: it opens the files,
takes them apart and puts equal stacks together. `facts and verdict` is the rest in Python, `naive`
the plain way in Python: a dict of tuples of lines. The last rows judge facts in memory, a stack and
a state for each rank, up to the words of the findings. Targets: 1 s for 10,000 ranks, 20 ms for 4.

Where `triage` reads files of their own, one takes 13 us to be found, opened and read, 35 us to be
checked for envelopes, 37 us for the scan that all readers of logs share, and 60 us or more for its
stacks, facts and the judges: the way of a file through Python, not its bytes, is the floor.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import _native
from oddrank.inputs import Item, Notes
from oddrank.triage import findings, verdict
from oddrank.triage.evidence import stacks
from oddrank.triage.facts import (
    Fact,
    Frame,
    Identity,
    Process,
    Source,
    Stack,
    State,
    Thread,
    World,
)
from oddrank.triage.judges import stacks as judge
from oddrank.triage.next_steps import next_steps
from oddrank.triage.view import view

DUMPS = 10_000
CULPRIT = 4711
WAITING = (
    "all_reduce (torch/distributed/distributed_c10d.py:3252)",
    "wrapper (torch/distributed/c10d_logger.py:83)",
)
LOADING = (
    "wait (threading.py:306)",
    "get (queue.py:179)",
    "_try_get_data (torch/utils/data/dataloader.py:1011)",
)
HELPERS = (("Thread-1 (_pin_memory_loop)", 14), ("QueueFeederThread", 14), ("Thread-3", 20))


def dump(rank: int) -> str:
    """Returns py-spy's output on a rank with four threads: 5 kB."""
    pid = 100_000 + rank
    lines = [f"Process {pid}: python -u train.py", "Python v3.11.7 (/usr/bin/python3.11)", ""]
    threads = [("MainThread", LOADING if rank == CULPRIT else WAITING, 32)]
    threads += [(name, ("wait (threading.py:320)",), depth) for name, depth in HELPERS]
    for number, (name, leaf, depth) in enumerate(threads):
        lines.append(f'Thread {pid + number * 1_000_000} (idle): "{name}"')
        lines += [f"    {frame}" for frame in leaf]
        lines += [
            f"    function_{i} (package/of/a/framework/module_{i}.py:{100 + i})"
            for i in range(depth)
        ]
    return "\n".join(lines) + "\n"


def naive(paths: list[Path]) -> int:
    groups = defaultdict(list)
    for number, path in enumerate(paths):
        stack: list[str] = []
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line.startswith("Thread "):
                if stack:
                    groups[tuple(stack)].append(number)
                stack = []
            elif line.startswith("    "):
                stack.append(line)
        groups[tuple(stack)].append(number)
    return len(groups)


def facts(ranks: int) -> list[Fact]:
    """Returns a stack and a state for each rank: the last one loads data, the others wait."""

    def stack(leaf: tuple[str, ...], chosen: Sequence[int]) -> Stack:
        names = [line.partition(" (") for line in leaf]
        inner = [Frame(name, *place.rstrip(")").split(":")[:1]) for name, _, place in names]
        outer = [Frame(f"function_{i}", f"package/module_{i}.py", 100 + i) for i in range(30)]
        threads = [Thread(processes[r], "MainThread", 1, source=sources[r]) for r in chosen]
        return Stack((*inner, *outer), tuple(threads))

    sources = [Source(f"rank_{rank}.txt") for rank in range(ranks)]
    processes = [Process(rank, f"node{rank // 8}", 100_000 + rank) for rank in range(ranks)]
    of_rank = list(zip(processes, sources, strict=True))
    return [
        World(ranks, sources[0]),
        *(Identity(process, source) for process, source in of_rank),
        *(State(process, "running", source, time=1.0) for process, source in of_rank),
        stack(WAITING, range(ranks - 1)),
        stack(LOADING, [ranks - 1]),
    ]


def judged(known: list[Fact]) -> None:
    seen = view(known)
    (suspect,) = verdict.suspects(seen)
    assert [process.rank for process in suspect.processes] == [len(suspect.waiting)]
    assert findings.finding(suspect, next_steps(suspect, seen)).what


def read_and_judged(items: list[Item]) -> None:
    (suspect,) = judge.judge(view(stacks.KIND.read(items, Notes())))
    assert [process.rank for process in suspect.processes] == [CULPRIT]
    assert len(suspect.waiting) == DUMPS - 1


def seconds(call: object) -> float:
    begin = time.process_time()
    call()  # type: ignore[operator]
    return time.process_time() - begin


def triaged(folder: str) -> float:
    """Returns the CPU seconds of `oddrank triage` of a folder."""
    before = os.times()
    command = [sys.executable, "-m", "oddrank", "triage", folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=600)
    if f"rank {CULPRIT} ".encode() not in done.stdout:
        raise SystemExit(f"triage has not found rank {CULPRIT}: {done.stdout[:300]!r}")
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def main() -> None:
    options = harness.parser(str(__doc__)).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        items = []
        for rank in range(DUMPS):
            path = Path(folder) / f"rank_{rank}.txt"
            text = dump(rank).encode()
            path.write_bytes(text)
            items.append(Item(path.name, path, len(text), text[:512]))
        paths = [os.fsencode(item.path) for item in items]
        core = _native.core()
        large, small = facts(DUMPS), facts(4)
        figures = harness.paired(
            {
                "read and group": lambda: seconds(lambda: core.read_stack_files(paths)),
                "all, with facts and verdict": lambda: seconds(lambda: read_and_judged(items)),
                "oddrank triage": lambda: triaged(folder),
                "naive Python": lambda: seconds(lambda: naive([item.path for item in items])),
                f"judge facts of {DUMPS:,} ranks": lambda: seconds(lambda: judged(large)),
                "judge facts of 4 ranks": lambda: seconds(lambda: judged(small)),
            }
        )
        megabytes = sum(item.size for item in items) / 1e6
    rows = [
        {"what": what, **{k: round(v, 4) for k, v in harness.spread(values).items()}}
        for what, values in figures.items()
    ]
    harness.report(
        "stack_speed", rows, options.json, dumps=DUMPS, megabytes=round(megabytes, 1),
        unit="seconds of CPU time",
    )  # fmt: skip


if __name__ == "__main__":
    main()

"""Measures the cost of the collective recorder for collectives and for other operations.

Its kernels stay in torch's dispatcher, so "not loaded" needs its own process: each repetition forks
two processes from one that has imported torch (the same memory layout). They take turns. Both are
armed, with all code switched off, to leave out the cost of the hooks.

Run it with torch 2.13 for `_torch`, and with a newer one that `_torch` does not fit for torch's own
hooks (`collective_recorder_hooks.json`).
"""

import multiprocessing
import statistics
import sys
import sysconfig
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import _native
from oddrank.trace import collectives

OPERATIONS = 30_000
COLLECTIVES = 300
TURNS = 20


def prepare(recorder: bool) -> None:
    paths = sysconfig.get_paths()
    with tempfile.TemporaryDirectory() as folder:  # the record stays mapped without its name
        arguments = (4 << 20, (0, 0, 1, 0), False, "host", "benchmark", [("*", "off")])
        code = ([paths["stdlib"] + "/"], [paths["purelib"] + "/", paths["platlib"] + "/"])
        _native.core().trace_arm([folder], "job", *arguments, *code)
    if recorder:
        collectives.start()


def small_operations(recorder: bool, turns: Connection) -> None:
    """Answers each message with the nanoseconds per operation of one turn."""
    prepare(recorder)
    x, y = torch.zeros(8), torch.ones(8)
    while turns.recv():
        begin = time.perf_counter_ns()
        for _ in range(OPERATIONS):
            x.add_(y)
        turns.send((time.perf_counter_ns() - begin) / OPERATIONS)


def all_reduces(recorder: bool, turns: Connection) -> None:
    """Answers with CPU time of all threads: gloo's and the recorder's work beside the caller."""
    prepare(recorder)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.zeros(8)
    while turns.recv():
        begin = time.process_time_ns()
        for _ in range(COLLECTIVES):
            dist.all_reduce(x)
        turns.send((time.process_time_ns() - begin) / COLLECTIVES)
    dist.destroy_process_group()


class Side:
    """Runs one process, with or without the recorder."""

    def __init__(self, work, recorder: bool) -> None:
        self.ours, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(
            target=work, args=(recorder, theirs)
        )
        self.process.start()

    def turn(self) -> float:
        self.ours.send(True)
        if not self.ours.poll(60):
            raise TimeoutError("a side of the benchmark does not answer")
        return self.ours.recv()

    def end(self) -> None:
        self.ours.send(False)
        self.process.join(30)


def repetition(work, recorders: tuple[bool, bool]) -> dict[str, float]:
    """Returns the medians of both sides, and of the ratios of neighbouring turns."""
    sides = [Side(work, recorder) for recorder in recorders]
    figures = harness.paired(
        {"without": sides[0].turn, "with": sides[1].turn}, repetitions=TURNS + 1
    )
    for side in sides:
        side.end()
    without, with_recorder = figures["without"][1:], figures["with"][1:]  # the first warms up
    return {
        "without": statistics.median(without),
        "with": statistics.median(with_recorder),
        "more": statistics.median(b - a for a, b in zip(without, with_recorder, strict=True)),
        "ratio": harness.ratio(with_recorder, without)["median"],
    }


def row(what: str, found: list[dict[str, float]]) -> dict[str, object]:
    return {
        "what": what,
        "ns_without": statistics.median(f["without"] for f in found),
        "ns_with": statistics.median(f["with"] for f in found),
        "ns_more": harness.spread([f["more"] for f in found]),
        "ratio": harness.spread([f["ratio"] for f in found]),
    }


CASES = {
    "add_ of 8 floats, recorder on / not loaded": (small_operations, (False, True)),
    "the same, not loaded / not loaded (noise)": (small_operations, (False, False)),
    "CPU time of an all_reduce of 8 floats, gloo, 1 rank, on / not loaded": (
        all_reduces,
        (False, True),
    ),
}


def main() -> None:
    arguments = harness.parser(__doc__.splitlines()[0], default_repetitions=11).parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[dict[str, float]]] = {what: [] for what in CASES}
    for _ in range(arguments.repetitions):
        for what, (work, recorders) in CASES.items():
            found[what].append(repetition(work, recorders))
    harness.report(
        "collective_recorder",
        [row(what, repetitions) for what, repetitions in found.items()],
        arguments.json,
        torch=torch.__version__,
        recorder=_native.collective_recorder(),
        target="add_ of 8 floats: median ratio <= 1.01; all_reduce: <= 5000 ns more",
    )


if __name__ == "__main__":
    main()

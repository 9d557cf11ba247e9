"""Measures a rank's cost for timestamps and marks, and the error of its offset to the root's clock.

All ranks run on this host, where the true offset of the clocks is 0.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank.control.session import Root, Session, start
from oddrank.launch import Launch

DEADLINE = 60.0
TIMESTAMPS = 200_000
QUESTIONS = 20


def ns_each(calls: Callable[[int], None], times: int) -> float:
    """Returns the CPU time (ns) per call, from `times` calls in a Python loop."""
    began = time.thread_time_ns()
    calls(times)
    return (time.thread_time_ns() - began) / times


def costs(session: Session) -> dict[str, float]:
    timestamps = session.timestamps(TIMESTAMPS)
    native = session._worker

    def nothing(times: int) -> None:
        for _ in range(times):
            pass

    def enter_and_leave(times: int) -> None:
        for _ in range(times):
            timestamps.enter()
            timestamps.leave()

    def progress(times: int) -> None:
        for _ in range(times):
            session.progress("64 MiB", waiting=True)

    def mark_step(times: int) -> None:
        for _ in range(times):
            native.mark_step("64 MiB", True)

    def monotonic(times: int) -> None:
        clock = time.monotonic_ns
        for _ in range(times):
            clock()

    empty = ns_each(nothing, TIMESTAMPS)
    return {
        "enter or leave": (ns_each(enter_and_leave, TIMESTAMPS) - empty) / 2,
        "progress()": ns_each(progress, TIMESTAMPS) - empty,
        "native mark_step()": ns_each(mark_step, TIMESTAMPS) - empty,
        "time.monotonic_ns()": ns_each(monotonic, TIMESTAMPS) - empty,
    }


def clocks(session: Session) -> list[tuple[int, int, float]]:
    """Returns (offset, error, ns that the question took) of each question."""
    answers = []
    for _ in range(QUESTIONS):
        began = time.perf_counter_ns()
        offset, error = session.sync_clock(shortcut=False)
        answers.append((offset, error, float(time.perf_counter_ns() - began)))
    return answers


def judge(root: Root) -> int:
    root.go("join", DEADLINE)
    root.await_stage("join")
    root.go("measure", DEADLINE)
    round_ = root.await_stage("measure")
    print(json.dumps([json.loads(round_.results[rank]) for rank in range(root.world)]), flush=True)
    return 0


def be_rank(what: str) -> int:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    here = Launch("env", rank, rank, world, world, 0, 1, "here", None, "")
    session = start(here, deadline=DEADLINE, judge=judge)
    session.enter("measure")
    session.publish(json.dumps(costs(session) if what == "costs" else clocks(session)).encode())
    return session.finish()


def run(what: str, world: int) -> list[Any]:
    """Runs the ranks; returns each one's result."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}#a-secret-word"
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", what],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "ODDRANK_CONTROL_ADDR": address,
            },
            stdout=subprocess.PIPE if rank == 0 else None,
        )
        for rank in range(world)
    ]
    out = ranks[0].communicate(timeout=DEADLINE + 5)[0]
    assert [rank.wait(5) for rank in ranks] == [0] * world
    published: list[Any] = json.loads(out)
    return published


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 64])
    parser.add_argument("--rank", choices=["costs", "clocks"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return be_rank(options.rank)
    runs = [run("costs", 1)[0] for _ in range(options.repetitions)]
    rows = [
        {
            "figure": name,
            "unit": "ns",
            "min/median/max": harness.spread([one[name] for one in runs]),
            "wanted": "<= 100" if name == "enter or leave" else "",
        }
        for name in runs[0]
    ]
    wrong = 0
    for world in options.ranks:
        answers = [answer for rank in run("clocks", world) for answer in rank]
        wrong += sum(abs(offset) > error for offset, error, _ in answers)
        for name, values in (
            ("true error of the offset", [abs(offset) for offset, _, _ in answers]),
            ("error it says", [error for _, error, _ in answers]),
            ("time of a question", [took for _, _, took in answers]),
        ):
            rows.append(
                {
                    "figure": f"{world} ranks at once: {name}",
                    "unit": "us",
                    "min/median/max": harness.spread([value / 1e3 for value in values]),
                    "p99": statistics.quantiles(values, n=100)[98] / 1e3,
                }
            )
    harness.report("control/timestamps_and_clock", rows, options.json, wrong=wrong)
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

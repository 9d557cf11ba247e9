"""Measures the root with 10,000 guards: seconds to join, seconds of a stage round, memory.

One other process (swarm.cpp, compiled here) simulates the guards over loopback. The root is real;
its states are fetched into Python twice a second, as for a progress display.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import _native
from oddrank.control.address import listen_on
from oddrank.control.session import Root

HERE = Path(__file__).parent
SOURCES = ["os/proc.cpp", "control/wire.cpp", "control/net.cpp"]


def build(folder: Path) -> Path:
    """Compiles the swarm; returns its executable."""
    csrc = HERE.parents[1] / "csrc"
    swarm = folder / "swarm"
    sources = [str(HERE / "swarm.cpp"), *(str(csrc / name) for name in SOURCES)]
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, "-std=c++20", "-O2", f"-I{csrc}", *sources, "-o", swarm], check=True)
    return swarm


def run_once(swarm: Path, world: int, rounds: int) -> dict[str, object]:
    """Runs one root from listen to end. Call it in a new process, where memory starts afresh."""
    core = _native.core()
    listener, port = listen_on(0)
    root = Root(core.Hub(listener, world, "secret", "localhost", 120.0), world, 120.0)
    guards = subprocess.Popen([swarm, str(port), "secret", str(world)], stdin=subprocess.PIPE)
    assert guards.stdin is not None
    time.sleep(0.2)
    root.go("join", 60)
    start = time.monotonic()
    guards.stdin.write(b"go\n")
    guards.stdin.flush()
    joined = root.await_stage("join", on_progress=lambda *_: None)
    join_s = time.monotonic() - start
    rounds_s = []
    reasons = [joined.reason]
    for number in range(rounds):
        start = time.monotonic()
        root.go(f"stage{number}", 30)
        done = root.await_stage(f"stage{number}", on_progress=lambda *_: None)
        rounds_s.append(time.monotonic() - start)
        reasons.append(done.reason)
        assert len(done.results) == world or done.reason != "complete"
    start = time.monotonic()
    root.go("clock", 30)
    clocks = root.await_stage("clock", on_progress=lambda *_: None)
    clock_s = time.monotonic() - start
    reasons.append(clocks.reason)
    answers = [tuple(map(int, answer.split())) for answer in clocks.results.values()]
    errors = [answer[1] / 1e6 for answer in answers if answer]
    wrong = sum(abs(answer[0]) > answer[1] for answer in answers if answer)
    time.sleep(3.0)  # heartbeats only
    idle = time.process_time()
    time.sleep(3.0)
    idle_cpu = (time.process_time() - idle) / 3.0
    silent = sum(state.contact != "ok" for state in root.snapshot())
    memory = harness.resident_mb()
    start = time.monotonic()
    root.end(0)
    end_s = time.monotonic() - start
    code = guards.wait(30)
    return {
        "join_s": join_s,
        "round_s": statistics.median(rounds_s),
        "round_max_s": max(rounds_s),
        "end_s": end_s,
        "resident_mb": memory,
        "idle_cpu": idle_cpu,
        "clock_s": clock_s,
        "clock_error_ms": statistics.median(errors),
        "clock_error_max_ms": max(errors),
        "silent": silent,
        "clocks_unknown": world - len(errors),
        "clocks_wrong": wrong,  # the true offset, 0, is not within their error
        "complete": set(reasons) == {"complete"} and code == 0,
    }


WANTED = {"join_s": 5.0, "round_s": 1.0, "round_max_s": 1.0, "clock_s": 5.0, "resident_mb": 200.0}


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)  # the swarm's executable
    options = parser.parse_args()
    if options.once:
        print(json.dumps(run_once(options.once, options.ranks, options.rounds)))
        return 0
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        swarm = build(Path(folder))
        command = [sys.executable, __file__, "--once", swarm, "--ranks", str(options.ranks)]
        command += ["--rounds", str(options.rounds)]
        for _ in range(options.repetitions):
            out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
            runs.append(json.loads(out.stdout))
    figures = [name for name, value in runs[0].items() if isinstance(value, float)]
    rows = [
        {
            "figure": name,
            "min/median/max": harness.spread([run[name] for run in runs]),
            "wanted": f"<= {WANTED[name]:g}" if name in WANTED else "",
        }
        for name in figures
    ]
    complete = all(run["complete"] for run in runs)
    silent, unknown, wrong = (
        max(run[name] for run in runs) for name in ("silent", "clocks_unknown", "clocks_wrong")
    )
    harness.report(
        "control/simulate_root",
        rows,
        options.json,
        ranks=options.ranks,
        complete=complete,
        wrongly_silent=silent,
        clocks_unknown=unknown,
        clocks_wrong=wrong,
    )
    print(
        f"all stages complete: {complete}; ranks wrongly called silent: {silent}; clocks unknown:"
        f" {unknown}, wrong: {wrong}",
        file=sys.stderr,
    )
    return 0 if complete and not silent + unknown + wrong else 1


if __name__ == "__main__":
    sys.exit(main())

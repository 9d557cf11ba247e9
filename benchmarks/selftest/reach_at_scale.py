"""Measures the root's seconds and bytes for connections and file systems of 10,000 nodes.

python benchmarks/selftest/reach_at_scale.py --json benchmarks/results/reach_at_scale.json

The nodes' results are simulated. The stages' own code does the rest: the plans, one node's part of
them, the judgements. One rank per node, for the most nodes.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank.control.stages import RankState, RunState
from oddrank.selftest import Options
from oddrank.selftest.connections import RENDEZVOUS, unpack
from oddrank.selftest.reach_matrix import PEERS, peers
from oddrank.selftest.stages import file_system, reach

FAULTS: dict[str, Callable[[int, int], bool]] = {
    "healthy": lambda i, j: False,
    "one deaf": lambda i, j: j == 4321,
    "a rack of 40 cut off": lambda i, j: (i < 40) != (j < 40),
    "two halves": lambda i, j: (i < 5000) != (j < 5000),
    "all closed": lambda i, j: True,
}
DICE = Random(1)
STEPS = ("create", "write", "fsync", "read", "close", "unlink")


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    done = work()
    return done, round(time.perf_counter() - began, 3)


def listening(node: int) -> dict[str, Any]:
    address = f"10.{node >> 14}.{node >> 7 & 127}.{node & 127}"
    place = {"interface": "eth0", "address": address, "port": DICE.randrange(32768, 61000)}
    return {
        "ways": {RENDEZVOUS: place}, "failed": {}, "asked": {}, "interfaces": ["eth0", "lo"],
        "ephemeral": "32768-60999",
    }  # fmt: skip


def attempted(node: int, nodes: int, broken: Callable[[int, int], bool]) -> dict[str, Any]:
    row = "".join("t" if broken(node, peer) else "." for peer in peers(node, nodes))
    return {"rows": {RENDEZVOUS: row}, "errors": {}}


def tried(node: int) -> dict[str, Any]:
    one = {
        "path": "/data", "state": "", "stopped_at": "",
        "error": "", "left": "", "waited": 0.02,
        "asked": False,
        "seconds": {step: [0.002 + node % 7 * 1e-4] * 3 for step in STEPS},
    }  # fmt: skip
    return {"working directory": one, "home": one, "temporary files": one}


def run(nodes: int, fault: str) -> dict[str, Any]:
    states = {r: RankState(r, f"node{r}", r, 0, contact="ok") for r in range(nodes)}
    state = RunState(nodes, states)
    options = Options()
    state.results["listen"] = {node: listening(node) for node in range(nodes)}
    told, plan = timed(lambda: json.dumps(reach.stage(options).plan(state)))
    _, own = timed(lambda: unpack(json.loads(told)["places"], nodes))
    said = json.dumps([attempted(node, nodes, FAULTS[fault]) for node in range(nodes)])
    read, reading = timed(lambda: dict(enumerate(json.loads(said))))
    state.results["reach"] = state.results["reach_recheck"] = read
    found, judged = timed(lambda: reach.stage(options).conclude(state))
    again = timed(lambda: reach.recheck(options).conclude(state))[1] if found else 0.0
    state.results["file_system"] = {node: tried(node) for node in range(nodes)}
    files, file_seconds = timed(lambda: file_system.stage(options).conclude(state))
    assert not files
    return {
        "nodes": nodes,
        "attempts": nodes * PEERS,
        "fault": fault,
        "named": len({rank for finding in found for rank in finding.who.ranks}),
        "causes": sorted({finding.cause for finding in found}),
        "plan_bytes": len(told),
        "results_MB": round(len(said) / 1e6, 2),
        "seconds": {
            "plan": plan, "a node's own part": own, "read": reading, "judge": judged,
            "judge again": again, "judge files": file_seconds,
        },
        "total_seconds": round(
            plan + own + reading + judged + again + file_seconds, 2
        ),
    }  # fmt: skip


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    given = parser.parse_args()
    rows = []
    for fault in FAULTS:
        rows.append(run(given.nodes, fault))
        print(json.dumps(rows[-1]), flush=True)
    if given.json:
        harness.write("reach_at_scale", rows, given.json)


if __name__ == "__main__":
    main()

"""Measures CPU seconds, bytes and lines of the judge of `oddrank selftest` with 10,000 ranks.

python benchmarks/selftest/report_at_scale.py --json benchmarks/results/report_at_scale.json

Each row runs in its own process. The ranks' results are simulated, as JSON. The command's own code
does the rest: it reads them, judges the stages with realistic results (environment, device,
all_reduce), and writes the report, the JSON, the text, the nodes to leave out and Prometheus's
file. Other stages only have as many figures as real ones, for the report's size.
"""

import contextlib
import gc
import io
import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import exclude
from oddrank.control.stages import RankState, RunState
from oddrank.control.walk import Outcome
from oddrank.launch import Launch
from oddrank.render import deliver
from oddrank.selftest import Options
from oddrank.selftest.report import _gauges, report_of, rows_of
from oddrank.selftest.speed_judge import TABLE as COMPARED
from oddrank.selftest.stages import TABLE, choose

PER_NODE = 8
# Stage -> metrics that a rank publishes, repeats of each.
FIGURES = {
    "reach": (2, 8), "file_system": (4, 9), "speed": (14, 9),
    "speed_recheck": (2, 9), "links": (4, 24), "collectives": (12, 5),
}  # fmt: skip
PARTS = 132  # multiprocessors of a GPU, each with its own fingerprint
PORTS = {f"mlx5_{i}/1": "ACTIVE, 400 Gb/sec (4X NDR), InfiniBand" for i in range(8)}
# Fault -> (ranks, facts): a node with another image; 300 ranks, each with its own difference.
FAULTS: dict[str, list[tuple[range, dict[str, Any]]]] = {
    "healthy": [],
    "a node": [(range(800, 808), {"torch": "2.11.0", "kernel": "5.4", "nccl": "2.27.3"})],
    "300 findings": [
        (range(rank, rank + 1), {"torch": f"2.13.0+{rank}"}) for rank in range(0, 9000, 30)
    ],
}


def facts_of(rank: int) -> dict[str, Any]:
    return {
        "gpus": 8, "gpu": "NVIDIA H200", "local_world": 8, "gpu_id": None, "cuda_part": "",
        "python": "3.11.7", "torch": "2.13.0+cu130", "oddrank": "0.1.0", "cuda": "13.0",
        "nccl": "2.29.7", "nccl_library": "/opt/venv/lib/nvidia/nccl/lib/libnccl.so.2",
        "driver": "580.95.05", "machine": "x86_64", "kernel": "6.8.0-79-generic",
        "system": "Ubuntu 24.04.3 LTS", "image": "/images/train.sif", "visible_gpus": None,
        "gpu_uuid": f"{rank:08x}-0000-4000-8000-{rank:012x}", "gpu_numa": rank % 8 // 4,
        "gpu_bus": f"0000:{27 + rank % 8 * 16:02x}:00.0", "shm_bytes": 1 << 40,
        "shm_free": (1 << 40) - rank * 4096, "nofile": "1048576/1048576", "memlock": "unlimited",
        "stack": "8388608/unlimited", "core": "0/unlimited", "cgroup_cpus": None,
        "cgroup_memory": None, "hostname": f"node{rank // 8:04d}", "cpus": 192,
        "memory_bytes": (2 << 40) - rank // 8 * 4096, "usable_cpus": 24, "governor": "performance",
        "numa": {"0": ("not used", "used")[rank % 8 < 4], "1": ("used", "not used")[rank % 8 < 4]},
        "settings": {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "mlx5", "OMP_NUM_THREADS": "1"},
        "network_cards": "1 up (100 Gb/s), 8 up (400 Gb/s)", "interface": "eth0", "mtu": 9000,
        "nccl_interfaces": "eth0", "rdma_ports": PORTS, "git_commit": "0123456789abcdef" * 2,
    }  # fmt: skip


def results_of(world: int, fault: str) -> dict[str, dict[int, bytes]]:
    """Returns stage -> rank -> published result."""
    random = Random(1)
    facts = {rank: facts_of(rank) for rank in range(world)}
    for who, changes in FAULTS[fault]:
        for rank in who:
            facts[rank].update(changes)
    every: dict[str, dict[int, Any]] = {
        "environment": facts,
        "device": {r: {"device": "GPU", "bytes": 1 << 30, "wrong": None} for r in facts},
        "all_reduce": {r: {"backend": "nccl", "mismatches": []} for r in facts},
        "fingerprint": {r: {"parts": [f"{r:016x}"] * PARTS} for r in facts},
    }
    for stage, (metrics, repeats) in FIGURES.items():
        every[stage] = {
            rank: {
                metric.name: [_as_sent(math.exp(random.gauss(7, 0.02))) for _ in range(repeats)]
                for metric in COMPARED[:metrics]
            }
            for rank in facts
        }
    return {
        stage: {rank: json.dumps(one).encode() for rank, one in results.items()}
        for stage, results in every.items()
    }


def _as_sent(value: float) -> float:
    return float(f"{value:.5g}")


def run(world: int, fault: str) -> dict[str, Any]:
    gc.disable()  # as the judge does
    published = results_of(world, fault)
    states = {
        rank: RankState(
            rank, f"node{rank // PER_NODE:04d}", rank // PER_NODE, rank % PER_NODE, contact="ok"
        )
        for rank in range(world)
    }
    outcome = Outcome(RunState(world, states, device="GPU"), joined=dict.fromkeys(states, 12.0))
    outcome.seconds, outcome.came = dict.fromkeys(published, 1.0), dict.fromkeys(published, world)
    launch = Launch("slurm", 0, 0, world, PER_NODE, 0, world // PER_NODE, "node0000", None, "1")
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        done = work()
        seconds[name] = round(time.process_time() - began, 2)
        return done

    def read() -> None:
        for stage, results in published.items():
            outcome.run.results[stage] = {r: json.loads(said) for r, said in results.items()}

    def judge() -> None:
        for stage in choose(TABLE, Options("full")).stages:
            if stage.name in ("environment", "device", "all_reduce"):
                outcome.findings += stage.conclude(outcome.run)

    timed("read", read)
    timed("judge", judge)
    report = timed("report", lambda: report_of(outcome, launch, {}))
    text = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(text):
        path = Path(folder, "report.json")
        timed(
            "text and JSON",
            lambda: deliver(
                report,
                str(path),
                ("stage", "ranks", "seconds", "result"),
                rows_of(outcome, {}),
            ),
        )
        size = path.stat().st_size
    nodes = timed("nodes to leave out", lambda: exclude.text(report, outcome.run.hosts))
    figures = timed("Prometheus", lambda: _gauges(report, outcome.run.hosts, 0))
    assert nodes
    return {
        "ranks": world,
        "fault": fault,
        "findings": len(report.findings),
        "published_MB": round(
            sum(len(one) for s in published.values() for one in s.values()) / 1e6
        ),
        "report_MB": round(size / 1e6, 1),
        "prometheus_MB": round(len(figures) / 1e6, 1),
        "text_lines": len(text.getvalue().splitlines()),
        **{f"{name}_s": took for name, took in seconds.items()},
        "total_s": round(sum(seconds.values()), 2),
    }


def main() -> None:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--ranks", type=int, default=10_000)
    given = parser.parse_args()
    rows = []
    for fault in FAULTS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(run, (given.ranks, fault)))
    harness.report("report_at_scale", rows, given.json)


if __name__ == "__main__":
    main()

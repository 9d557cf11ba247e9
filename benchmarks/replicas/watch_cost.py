"""Measures the cost of watch(every=100) and watch_nonfinite in a CPU step, on two gloo ranks.

python benchmarks/replicas/watch_cost.py --json benchmarks/results/replicas_watch.json

Times on rank 0: a step of a DDP model of 10 million parameters with AdamW, and a comparison of its
parameters, gradients and optimizer state, which every 100th step makes. Then steps without and with
a search for NaN, which ranks compare after each step, take turns. Both cost the same for any batch,
so their share falls as the batch grows.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import replicas
from oddrank.replicas import entries
from oddrank.replicas.check import Checker

RANKS = 2
WIDTH, LAYERS, BATCHES = 1024, 10, (64, 512)  # samples a rank and step


def rank_main(rank: int, folder: Path, batch: int, repetitions: int) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    module = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(module.parameters())
    checker = Checker(module, optimizer, "auto", entries.ALL)
    steps, checks, searched = [], [], []

    def train() -> float:
        began = time.perf_counter()
        optimizer.zero_grad()
        module(torch.randn(batch, WIDTH)).square().mean().backward()
        optimizer.step()
        return time.perf_counter() - began

    for repetition in range(repetitions + 1):
        took = train()
        between = time.perf_counter()
        report = checker.run({} if repetition == 0 else None)
        ended = time.perf_counter()
        assert report.verdict == "healthy", report.summary
        if repetition > 0:  # the first one sets everything up
            steps.append(took)
            checks.append(ended - between)
            with replicas.watch_nonfinite(module, optimizer, every=1):
                searched.append(train())
    if rank == 0:
        found = {
            "steps": steps, "checks": checks, "searched": searched, "bytes": report.data["bytes"],
        }  # fmt: skip
        (folder / "rank0.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def measure(batch: int, repetitions: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name:
        more = ["--folder", name, "--batch", str(batch), "--repetitions", str(repetitions)]
        ranks = [
            subprocess.Popen([sys.executable, __file__, "--rank", str(rank), *more])
            for rank in range(RANKS)
        ]
        if any(rank.wait(timeout=1800) for rank in ranks):
            sys.exit("a rank failed: see above")
        found = json.loads((Path(name) / "rank0.json").read_text())
    checks = zip(found["checks"], found["steps"], strict=True)
    searches = zip(found["searched"], found["steps"], strict=True)
    return {
        "batch": batch,
        "MiB compared": found["bytes"] / 2**20,
        "step ms": harness.spread([1e3 * one for one in found["steps"]]),
        "check ms": harness.spread([1e3 * one for one in found["checks"]]),
        "share of a step at every=100": harness.spread([took / of / 100 for took, of in checks]),
        "share of a step, search for NaN": harness.spread([took / of - 1 for took, of in searches]),
    }


def main() -> None:
    parser = harness.parser((__doc__ or "").partition("\n")[0], 20)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--batch", type=int)
    options = parser.parse_args()
    if options.rank is not None:
        rank_main(options.rank, options.folder, options.batch, options.repetitions)
        return
    rows = [measure(batch, options.repetitions) for batch in BATCHES]
    harness.report("replicas/watch_cost", rows, options.json)


if __name__ == "__main__":
    main()

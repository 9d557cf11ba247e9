"""Measures the cost of arm() in a training step: small GPT on the CPU, DDP, DataLoader worker.

Blocks of armed and unarmed steps take turns in one process, so that both see the same machine.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import oddrank

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

STEPS = 20  # steps of a block
VOCABULARY, LENGTH, WIDTH, LAYERS, BATCH = 512, 64, 128, 4, 8


class Tokens(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.arange(i, i + LENGTH + 1) % VOCABULARY


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = torch.nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.grow = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.shrink = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.shrink(torch.nn.functional.gelu(self.grow(self.norms[1](x))))


class Gpt(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x)
        return logits


class Training:
    def __init__(self) -> None:
        self.model = DistributedDataParallel(Gpt())
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.batches: Iterator[torch.Tensor] = iter(
            DataLoader(Tokens(), batch_size=BATCH, num_workers=1)
        )
        self.count = 0

    def step(self) -> None:
        oddrank.step(self.count)
        self.count += 1
        with oddrank.section("data"):
            tokens = next(self.batches)
        self.optimizer.zero_grad()
        logits = self.model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()

    def milliseconds(self, packages: object) -> float:
        """Returns the median of a block's steps; packages: None runs it unarmed."""
        armed = oddrank.arm(packages if packages != "defaults" else None) if packages else None
        times = []
        for _ in range(STEPS):
            begin = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - begin)
        if armed is not None:
            armed.remove()
        return statistics.median(times) * 1e3


def main() -> None:
    arguments = harness.parser(__doc__ or "", 15).parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ODDRANK_DIR"] = folder
        dist.init_process_group("gloo", init_method=f"file://{folder}/here", rank=0, world_size=1)
        training = Training()
        training.milliseconds(None)  # warm
        sides = {
            "not armed": partial(training.milliseconds, None),
            "defaults": partial(training.milliseconds, "defaults"),
            "user and torch by lines": partial(
                training.milliseconds, {"__main__": "lines", "torch": "lines"}
            ),
        }
        figures = harness.paired(sides, arguments.repetitions)
        rows = [
            {
                "recorder": name,
                "ms a step": harness.spread(times),
                "ratio": harness.ratio(times, figures["not armed"]),
            }
            for name, times in figures.items()
        ]
        harness.report("training_step", rows, arguments.json)
        sys.stdout.flush()
        os._exit(0)  # torch's own threads may abort at exit


if __name__ == "__main__":
    main()

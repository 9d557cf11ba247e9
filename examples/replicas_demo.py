"""BLOOM's bug on 4 ranks, and which rank it is: `torchrun --nproc-per-node 4 replicas_demo.py`.

A small tensor-parallel training: the ranks share the linear layers, and each has all of the layer
norms. The norms' gradients are clipped, but not on the last rank, so its norms go their own way.
The loss shows nothing; `oddrank.replicas.watch` says it after the first step, on all ranks.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from oddrank import replicas


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def train(rank: int, world: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block())
    mesh = init_device_mesh("cpu", (world,))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replicas.watch(model, optimizer, every=100, what=("params", "optim"))
    for _ in range(200):
        optimizer.zero_grad()
        (100 * model(torch.randn(16, 64))).square().mean().backward()
        if rank != world - 1:  # the last one forgets it
            for block in model:
                torch.nn.utils.clip_grad_norm_(block.norm.parameters(), 1.0)
        optimizer.step()


def main() -> int:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    try:
        train(rank, world)
    except replicas.ReplicasDifferError as error:
        if rank == 0:
            print(error, flush=True)
        return 1
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Ranks that torch.multiprocessing.spawn starts, with DDP: see goes_wrong.py."""

import os

import torch
import torch.distributed as dist
from goes_wrong import STEPS, comes_to, ended, loader, model
from torch.nn.parallel import DistributedDataParallel


def trains(rank):
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ |= {name: str(value) for name, value in own.items()}
    dist.init_process_group("gloo")
    layers = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(layers.parameters(), 0.01)
    for _, batch in zip(range(STEPS), loader(), strict=False):
        comes_to("step")
        layers(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        comes_to("callback")
    ended(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(trains, nprocs=2)

"""Ranks that torch.multiprocessing.spawn starts, with DDP: see goes_wrong.py."""

import os

import torch
import torch.distributed as dist
from goes_wrong import model, trains
from torch.nn.parallel import DistributedDataParallel


def starts(rank):
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ |= {name: str(value) for name, value in own.items()}
    dist.init_process_group("gloo")
    trains(DistributedDataParallel(model()))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(starts, nprocs=2)

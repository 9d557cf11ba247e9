"""One side of run_to_run.py: an all_reduce sweep like the usual scripts, written anew.

A random tensor for each size, five warm-up rounds, twenty timed ones with a barrier before each;
takes the mean bandwidth over ranks and rounds. Prints JSON: busbw by size, and seconds in all.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

WARMUP, ROUNDS = 5, 20


def one_round(tensor):
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(tensor)
    return time.perf_counter() - began


def main():
    sizes = [int(size) for size in sys.argv[1].split(",")]
    dist.init_process_group("gloo")
    began, found = time.perf_counter(), {}
    world = dist.get_world_size()
    for size in sizes:
        tensor = torch.rand(size // 4, dtype=torch.float32)
        for _ in range(WARMUP):
            one_round(tensor)
        rates = [size / one_round(tensor) / 1e9 * 2 * (world - 1) / world for _ in range(ROUNDS)]
        mean = torch.tensor([sum(rates) / len(rates)])
        dist.all_reduce(mean)
        found[size] = float(mean[0]) / world
    seconds = time.perf_counter() - began
    if dist.get_rank() == 0:
        print(json.dumps({"busbw": found, "seconds": seconds}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

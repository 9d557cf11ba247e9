"""A training of 4 ranks that hangs: rank 2 waits for a lock that nobody gives back.

torchrun --nproc-per-node 4 -m oddrank run --stall 10s --on-stall kill hang_demo.py
"""

import threading
import time

import torch
import torch.distributed as dist

HANGS, AT_STEP = 2, 5


def write_metrics(metrics: threading.Lock) -> None:
    with metrics:
        pass


def main() -> None:
    dist.init_process_group("gloo")
    metrics = threading.Lock()
    for step in range(1000):
        if dist.get_rank() == HANGS and step == AT_STEP:
            metrics.acquire()
        write_metrics(metrics)
        dist.all_reduce(torch.ones(1024))
        time.sleep(0.01)


if __name__ == "__main__":
    main()

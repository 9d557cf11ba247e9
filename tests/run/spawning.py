"""A script that starts its ranks itself, by mp.spawn: rank 1 waits for a licence that never comes.

Arguments as of training.py; ARM in the environment: each rank watches itself.
"""

import os
import sys
import threading
import time


def waits_for_a_licence():
    threading.Event().wait(10_000)


def trains(rank, world):
    import torch
    import torch.distributed as dist

    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    os.environ |= {name: str(value) for name, value in own.items()}
    if "ARM" in os.environ:
        import oddrank

        oddrank.arm(watch=True, stall=3, json="report.json", on_stall=os.environ["ARM"])
    dist.init_process_group("gloo")
    for step in range(int(sys.argv[3])):
        if rank == 1 and step == 8:
            waits_for_a_licence()
        dist.all_reduce(torch.ones(1))
        time.sleep(0.05)


if __name__ == "__main__":
    import torch.multiprocessing as mp

    mp.spawn(trains, (3,), nprocs=3)

"""A script that starts its ranks itself, by mp.spawn: rank 1 waits for a licence that never comes.

Arguments as of training.py; ARM in the environment: each rank watches itself. TWICE: other ranks
came before. LAUNCHES: the script is rank 0 and starts itself as the others. DOES: what rank 1 does.
"""

import os
import signal
import subprocess
import sys
import threading
import time


def waits_for_a_licence():
    threading.Event().wait(10_000)


def reads_a_shard():
    raise ValueError("bad shard 7")


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


def evaluates():
    end = time.monotonic() + 12
    while time.monotonic() < end:
        sum(range(1000))


DOES = {
    "works": evaluates, "waits": waits_for_a_licence, "raises": reads_a_shard, "is_killed": dies,
}  # fmt: skip


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
            DOES[os.environ.get("DOES", "waits")]()
        dist.all_reduce(torch.ones(1))
        time.sleep(0.05)


if __name__ == "__main__" and "LAUNCHES" in os.environ:
    own = int(os.environ.get("OWN_RANK", "0"))
    for rank in range(1, 3 if own == 0 else 0):
        environ = {**os.environ, "OWN_RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank)}
        subprocess.Popen([sys.executable, *sys.argv], env=environ)
    trains(own, 3)
elif __name__ == "__main__":
    import torch.multiprocessing as mp

    if "TWICE" in os.environ:  # with more ranks, which end well, before those that stand
        steps, sys.argv[3] = sys.argv[3], "4"
        mp.spawn(trains, (4,), nprocs=4)
        sys.argv[3] = steps
    mp.spawn(trains, (3,), nprocs=3)

"""One rank of a gloo job of four that records itself and breaks: record_job.py FAULT.

Rank 2 is the culprit. Prints "ready" once it can come no further.
"""

import os
import queue
import sys
import threading
import time

import oddrank

oddrank.arm()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

CULPRIT = 2


def waits_for_a_batch() -> None:
    with oddrank.section("data"):
        queue.Queue().get()


def spins() -> None:
    turns = 0
    while True:
        turns += 1


def watches() -> None:
    """A thread that goes on whatever its rank does."""
    while True:
        time.sleep(0.02)


def raises() -> None:
    raise ValueError("labels out of range")


FAULTS = {
    "dataloader": waits_for_a_batch,
    "loop": spins,
    "raises": raises,
    "exits": lambda: os._exit(7),
    "returns": lambda: sys.exit(0),
    "stopped": lambda: time.sleep(1000),
    "killed": lambda: time.sleep(1000),
}


def main() -> None:
    fault, rank = sys.argv[1], int(os.environ["RANK"])
    dist.init_process_group("gloo")
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = torch.ones(8)
    for step in range(3):
        oddrank.step(step)
        dist.all_reduce(model)
        dist.all_reduce(torch.ones(2), group=pairs[rank // 2])
    threading.Thread(target=watches, daemon=True).start()
    ready = threading.Timer(0.5, print, ["ready"], {"flush": True})
    ready.daemon = True
    ready.start()
    if fault == "size":
        dist.all_reduce(torch.ones(5 if rank == CULPRIT else 4), async_op=True)
        time.sleep(1000)
    elif fault == "dtype":
        dtype = torch.float64 if rank == CULPRIT else torch.float32
        dist.all_reduce(torch.ones(4, dtype=dtype), async_op=True)
        time.sleep(1000)
    elif fault == "order" and rank == CULPRIT:
        dist.broadcast(model, 0, async_op=True)
        dist.all_reduce(model, async_op=True)
        time.sleep(1000)
    elif fault == "order":
        dist.all_reduce(model, async_op=True)
        dist.broadcast(model, 0, async_op=True)
        time.sleep(1000)
    elif fault == "peer":
        if rank == 3:
            dist.recv(model, CULPRIT, tag=5)
        time.sleep(1000)
    elif rank == CULPRIT:
        FAULTS[fault]()
    dist.all_reduce(model)


main()

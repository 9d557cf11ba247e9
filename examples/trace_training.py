"""A small DDP training whose ranks say where they are, also when they hang or have been killed.

torchrun --nproc-per-node 4 trace_training.py
torchrun --nproc-per-node 4 trace_training.py --hang collective    # then, in another shell:
oddrank trace where

--hang makes the last rank stand still at step 3: it skips a collective that the others wait in
(collective), waits for data that never comes (data), for a lock that nobody gives back (lock), or,
in a callback that one of gloo's threads runs, for a collective that no other rank calls (callback).
"""

import argparse
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import oddrank

HANGS = ("", "collective", "data", "lock", "callback")


def next_batch(batches: "queue.Queue[torch.Tensor]") -> torch.Tensor:
    with oddrank.section("data"):
        return batches.get()


def skip_the_collective() -> None:
    time.sleep(3600)


def wait_for_the_lock(lock: threading.Lock) -> None:
    with lock:
        pass


def average_in_a_callback(group: dist.ProcessGroup, last: bool) -> None:
    def average(_: object) -> None:
        if last:
            dist.all_reduce(torch.zeros(1), group=group)

    if not last:
        dist.barrier(group)  # so that the last rank's callback is run by gloo's thread, not its own
    done = dist.all_reduce(torch.zeros(1), async_op=True).get_future().then(average)
    if last:
        dist.barrier(group)
    done.wait()


def hang(how: str, group: dist.ProcessGroup, last: bool) -> None:
    if how == "callback":
        average_in_a_callback(group, last)
    elif not last:
        pass
    elif how == "data":
        next_batch(queue.Queue())
    elif how == "lock":
        lock = threading.Lock()
        lock.acquire()
        wait_for_the_lock(lock)
    else:
        skip_the_collective()


def train(steps: int, how: str) -> None:
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches: queue.Queue[torch.Tensor] = queue.Queue()
    group = dist.new_group()
    last = dist.get_rank() == dist.get_world_size() - 1
    for step in range(steps):
        oddrank.step(step)
        batches.put(torch.randn(8, 64))
        batch = next_batch(batches)
        if how and step == 3:
            hang(how, group, last)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    oddrank.mark("trained")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--hang", choices=HANGS, default="")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    train(arguments.steps, arguments.hang)
    dist.destroy_process_group()


if __name__ == "__main__":
    oddrank.arm()  # at the top of a training script: all that it needs
    main()

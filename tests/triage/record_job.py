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


def watches() -> None:
    """A thread that goes on whatever its rank does."""
    while True:
        time.sleep(0.02)


def exchange(rank: int) -> list[dist.Work]:
    """Ranks 0 and 1 exchange two messages, both in the same order."""
    ops = [dist.P2POp(dist.isend, torch.ones(4), 1 - rank)] if rank < 2 else []
    ops += [dist.P2POp(dist.irecv, torch.ones(4), 1 - rank)] if rank < 2 else []
    return list(dist.batch_isend_irecv(ops)) if ops else []


def reduce_and_broadcast(rank: int) -> None:
    """The culprit does it in the other order."""
    model = torch.ones(8)
    calls = [lambda: dist.all_reduce(model, async_op=True),
             lambda: dist.broadcast(model, 0, async_op=True)]  # fmt: skip
    for call in calls[:: -1 if rank == CULPRIT else 1]:
        call()


FAULTS = {  # of the culprit alone
    "dataloader": waits_for_a_batch,
    "stopped": lambda: time.sleep(1000),
    "messages": lambda: time.sleep(1000),
    "killed": lambda: time.sleep(1000),
}
OTHER_CALLS = {  # what each rank does
    "size": lambda rank: dist.all_reduce(torch.ones(4 + (rank == CULPRIT)), async_op=True),
    "dtype": lambda rank: dist.all_reduce(
        torch.ones(4, dtype=torch.float64 if rank == CULPRIT else torch.float32), async_op=True
    ),
    "order": reduce_and_broadcast,
    "peer": lambda rank: dist.recv(torch.ones(8), CULPRIT, tag=5) if rank == 3 else None,
}


def meet() -> None:
    """gloo ends a rank in a call unlike the others', who must be out of the one before."""
    store = dist.distributed_c10d._get_default_store()
    store.add("there", 1)
    while store.add("there", 0) < 4:
        time.sleep(0.01)


def main() -> None:
    fault, rank = sys.argv[1], int(os.environ["RANK"])
    dist.init_process_group("gloo")
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = torch.ones(8)
    for step in range(3):
        oddrank.step(step)
        dist.all_reduce(model)
        dist.all_reduce(torch.ones(2), group=pairs[rank // 2])
    if fault == "messages":
        for work in exchange(rank):
            work.wait()
    open_works = exchange(rank) if fault == "messages" else []
    threading.Thread(target=watches, daemon=True).start()
    ready = threading.Timer(0.5, print, ["ready"], {"flush": True})
    ready.daemon = True
    ready.start()
    if fault in OTHER_CALLS:
        meet()
        OTHER_CALLS[fault](rank)
        time.sleep(1000)
    elif rank == CULPRIT:
        FAULTS[fault]()
    dist.all_reduce(model)
    for work in open_works:
        work.wait()


main()

"""Programs of one rank whose record a test reads while they run or after their death.

collective_faults_job.py PROGRAM RANK WORLD FOLDER; prints the path of the record first.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from armed import arm

from oddrank.trace import collectives


def join(folder: Path, rank: int, world: int) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world
    )


def one_stays_away(folder: Path, rank: int, world: int) -> None:
    """Both ranks join two all_reduces; rank 1 never joins the third."""
    join(folder, rank, world)
    group = dist.new_group(list(range(world)))
    for _ in range(2):
        dist.all_reduce(torch.ones(5), group=group)
    if rank == 0:
        dist.all_reduce(torch.ones(1000, dtype=torch.float64), group=group)
    time.sleep(120)


def hundred_thousand(folder: Path, rank: int, world: int) -> None:
    """Issues 100,000 small collectives and waits for every second one."""
    join(folder, rank, world)
    x, in_flight = torch.zeros(4), []
    for i in range(100_000):
        work = dist.all_reduce(x, async_op=True)
        if i % 2:
            work.wait()
        in_flight = [*in_flight[-7:], work]
    for work in in_flight:
        work.wait()


def fork(folder: Path, rank: int, world: int) -> None:
    """Forks before the group is made: the child trains alone, then the parent."""
    child = os.fork()
    if child == 0:
        join(folder, 0, 1)
        dist.all_reduce(torch.ones(3))
        dist.barrier()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    (folder / "rendezvous").unlink()
    join(folder, rank, world)
    dist.all_reduce(torch.ones(7))


def issued_at_exit(folder: Path, rank: int, world: int) -> None:
    """Ends the process while Works are open and threads issue collectives."""
    import threading

    join(folder, rank, world)

    def issue() -> None:
        while True:
            dist.all_reduce(torch.ones(1), async_op=True)

    for _ in range(2):
        threading.Thread(target=issue, daemon=True).start()
    time.sleep(0.2)
    (record,) = (folder / "records").rglob("*.trace")
    end = time.monotonic() + 30
    while len(collectives.read(record)) <= 10 and time.monotonic() < end:
        time.sleep(0.01)


def main() -> None:
    program, rank, world, folder = *sys.argv[1:2], *map(int, sys.argv[2:4]), Path(sys.argv[4])
    torch.set_num_threads(1)
    rules = [("__main__", "lines"), ("*", "off")] if program == "fork" else [("*", "off")]
    print(arm(folder / "records", rank=rank, world=world, rules=rules), flush=True)
    collectives.start()
    globals()[program](folder, rank, world)
    if program != "issued_at_exit":  # otherwise gloo sometimes ends the process with SIGABRT
        dist.destroy_process_group()


main()

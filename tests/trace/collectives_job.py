"""One rank of a real gloo job: runs SCENARIOS with the recorder on, writes its records.

collectives_job.py RANK WORLD FOLDER
"""

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from armed import arm
from torch.nn.parallel import DistributedDataParallel

from oddrank.trace import collectives

SCENARIOS: dict[str, Callable[[int], object]] = {}
RECORD = ""  # path of this process's file
SEEN = 0  # records in it when the scenario began


def states() -> list[str]:
    """Returns the states of the collectives issued since the scenario began."""
    return [record.state for record in collectives.read(RECORD)[SEEN:]]


def scenario(run: Callable[[int], object]) -> Callable[[int], object]:
    SCENARIOS[run.__name__] = run
    return run


def train(recorded: bool) -> list[float]:
    """Trains three DDP steps, one bucket per parameter, the last recorded; returns parameters."""
    if recorded:
        collectives.stop()
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    model = DistributedDataParallel(layers, bucket_cap_mb=1e-6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        if step == 2 and recorded:  # DDP has arranged its buckets after the first step
            collectives.start()
        optimizer.zero_grad()
        model(torch.full((5, 4), float(dist.get_rank() + step))).square().sum().backward()
        optimizer.step()
    return [value for p in model.parameters() for value in p.flatten().tolist()]


@scenario
def ddp_step(rank: int) -> object:
    return train(recorded=True)


@scenario
def functional_calls(rank: int) -> object:
    x = torch.ones(10)
    total = functional.all_reduce(x, "sum", dist.group.WORLD) + 0
    gathered = functional.all_gather_tensor(x, 0, dist.group.WORLD) + 0
    return [total.sum().item(), gathered.sum().item()]


@scenario
def compiled_all_reduce(rank: int) -> object:
    def f(x: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    traced = compiled(torch.ones(7)).tolist()
    issued = len(states())  # tracing issues nothing, running does
    assert compiled(torch.ones(7)).tolist() == traced
    return [traced, issued]


@scenario
def point_to_point(rank: int) -> object:
    x = torch.full((6,), float(rank), dtype=torch.float64)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(x, 1)
    else:
        other = torch.empty_like(x)
        dist.recv(other, 0)
        dist.send(x, 0)
        x = other
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(torch.empty_like(x))  # from any rank
    both = [
        dist.P2POp(dist.isend, torch.ones(2), 1 - rank),
        dist.P2POp(dist.irecv, torch.ones(2), 1 - rank),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return x.tolist()


@scenario
def barriers_and_a_second_group(rank: int) -> object:
    collectives.stop()
    group = dist.new_group([0, 1])
    collectives.start()
    dist.all_reduce(torch.ones(3), group=group)
    dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(4), group=group)
    dist.barrier(group=group)
    dist.barrier()
    dist.monitored_barrier()
    return group.group_name


@scenario
def rooted_and_gathering(rank: int) -> object:
    x = torch.ones(10)
    parts = [torch.ones(10), torch.ones(10)]
    dist.broadcast(x, 0)
    dist.reduce(x, 0)
    dist.scatter(x, parts if rank == 0 else None, 0)
    dist.gather(x, parts if rank == 0 else None, 0)
    dist.all_gather(parts, x)
    dist.all_to_all_single(torch.empty(20), torch.ones(20))
    with dist._coalescing_manager():
        dist.all_reduce(x)
        dist.all_reduce(x)
    return None


@scenario
def issued_by_two_threads(rank: int) -> object:
    def issue() -> None:
        dist.all_reduce(torch.ones(5))

    other = threading.Thread(target=issue)
    other.start()
    other.join()
    issue()
    return [other.native_id, threading.get_native_id()]


@scenario
def an_operation_that_raises(rank: int) -> object:
    group = dist.group.WORLD
    messages = []
    for _ in ("recorded", "not recorded"):
        try:
            group.broadcast(torch.ones(1).to_sparse(), root=0).wait()
        except NotImplementedError as error:
            messages.append(str(error).splitlines()[0])
        collectives.stop()
    return messages


@scenario
def waited_for_and_not(rank: int) -> object:
    """Issues Works that complete without wait(), and sends whose Works are dropped or kept."""
    reduced = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(20)]
    waiting = time.monotonic() + 10
    while not all(work.is_completed() for work in reduced) and time.monotonic() < waiting:
        time.sleep(0.001)
    after_completion = states()
    other, x = 1 - rank, torch.ones(2)
    sent, received = dist.isend(x, other), dist.irecv(torch.empty(2), other)
    received.wait()
    kept = states()[20:]
    collectives.stop()
    dist.barrier()  # gloo cancels a send whose Work is dropped too early
    del sent
    gc.collect()
    return [after_completion, kept, states()[20:]]


@scenario
def stopped_while_one_is_open(rank: int) -> object:
    """Keeps rank 0's recv open until rank 1 passes a barrier that is not recorded."""
    received = dist.irecv(torch.empty(2), 1) if rank == 0 else None
    collectives.stop()
    before = states()
    dist.barrier()
    if received is None:
        dist.send(torch.ones(2), 0)
    else:
        received.wait()
    return [before, states()]


@scenario
def profiled(rank: int) -> object:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(torch.ones(4))
        dist.all_reduce(torch.ones(4), async_op=True).wait()
    return sum(event.count for event in profiler.key_averages() if event.key == "gloo:all_reduce")


@scenario
def after_stop(rank: int) -> object:
    dist.all_reduce(torch.ones(1))
    collectives.stop()
    x = torch.ones(2)
    dist.all_reduce(x)
    return x.tolist()


@scenario
def many_threads_at_once(rank: int) -> object:
    """Gives each thread its own group of one rank, so ranks need no common order."""
    collectives.stop()
    groups = [dist.new_group([r]) for r in range(2) for _ in range(4)][4 * rank : 4 * rank + 4]
    collectives.start()

    def issue(group: dist.ProcessGroup) -> None:
        for _ in range(100):
            dist.all_reduce(torch.ones(1), group=group)

    threads = [threading.Thread(target=issue, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    most_open = 0
    while any(thread.is_alive() for thread in threads):
        most_open = max(most_open, states().count("open"))
    return most_open


@scenario
def forked_while_one_is_open(rank: int) -> object:
    """Forks: the child drops its copy of the Work, which must not end the parent's collective."""
    received = dist.irecv(torch.empty(2), 1) if rank == 0 else None
    child = os.fork()
    if child == 0:
        del received
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    after_fork = states()
    dist.barrier()
    if received is None:
        dist.send(torch.ones(2), 0)
    else:
        received.wait()
    return after_fork


def settled() -> list[collectives.Collective]:
    """Waits until no collective is open: DDP returns before a Work's end is recorded."""
    deadline = time.monotonic() + 10
    while "open" in states() and time.monotonic() < deadline:
        time.sleep(0.001)
    return collectives.read(RECORD)[SEEN:]


def main() -> None:
    global RECORD, SEEN
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world
    )
    found: dict[str, dict[str, object]] = {
        "before_the_recorder": {"result": train(recorded=False), "records": []}
    }
    # 16 MiB has room for all: a record of the default size keeps only a thousand.
    RECORD = arm(folder, rank=rank, world=world, megabytes=16)
    for name, run in SCENARIOS.items():
        dist.barrier()
        SEEN = len(collectives.read(RECORD))
        collectives.start()
        result = run(rank)
        collectives.stop()
        found[name] = {"result": result, "records": settled()}
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


main()

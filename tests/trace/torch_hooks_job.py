"""A rank of a gloo job for test_torch_hooks.py, with any recorded torch: FOLDER [stuck|leave].

Writes its collectives as FOLDER/rankR.json. stuck: rank 2 does not come to the third all_reduce.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

import oddrank
from oddrank.trace import collectives
from patience import until

FIELDS = (
    "op", "group", "seq", "bytes", "bytes_in", "bytes_out", "dtype", "ranks", "backend", "peer",
    "root", "state", "failed",
)  # fmt: skip
FOLDER, RANK, WORLD = Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def issue(pair: dist.ProcessGroup, first: int) -> None:
    """Issues one of each; pair: the group of two neighbours, first: the lower one."""
    x, is_first = torch.ones(3), first == RANK
    parts = [torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)]
    dist.all_reduce(x)
    dist.broadcast(x, 1)
    dist.all_gather(parts, torch.ones(3, dtype=torch.float64), group=pair)
    dist.all_gather_into_tensor(torch.ones(6), x, group=pair)
    dist.reduce_scatter(parts[0], parts, group=pair)
    dist.reduce_scatter_tensor(x, torch.ones(6), group=pair)
    dist.reduce(x, first + 1, group=pair)
    dist.gather(x, [torch.ones(3), torch.ones(3)] if is_first else None, first, group=pair)
    dist.scatter(x, [torch.ones(3), torch.ones(3)] if is_first else None, first, group=pair)
    dist.all_to_all(parts, [torch.ones(3, dtype=torch.float64) for _ in range(2)], group=pair)
    dist.all_to_all_single(torch.empty(4), torch.ones(4), group=pair)
    dist.barrier()
    if is_first:
        dist.send(x, first + 1, group=pair, tag=7)
        dist.recv(x, group=pair)
    else:
        dist.recv(x, first, group=pair, tag=7)
        dist.send(x, first, group=pair)
    sent = dist.isend(torch.ones(1), RANK ^ 1, group=pair)
    work = dist.irecv(torch.ones(1), RANK ^ 1, group=pair)
    for one in (work, sent):
        one.wait()
    functional.all_reduce(x, "sum", dist.group.WORLD).sum().item()
    functional.all_gather_tensor(x, 0, dist.group.WORLD).sum().item()
    dist.all_reduce(x, async_op=True).wait()


def train(path: str) -> int:
    """Trains until DDP has arranged its buckets, one for each parameter; then one step.

    Returns the number of collectives before that step: what DDP issues at first depends on the
    version.
    """
    before = 0
    layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    model = DistributedDataParallel(layers, bucket_cap_mb=1e-6)
    for step in range(3):
        if step == 2:
            before = len(collectives.read(path))
        model(torch.ones(5, 4)).sum().backward()
    return before


def rows_of(found: list[collectives.Collective], first: int) -> list[dict[str, object]]:
    """first: what their numbers count from."""
    rows = [{name: getattr(one, name) for name in FIELDS} for one in found]
    return [row | {"seq": row["seq"] and row["seq"] - first} for row in rows]


def wait_alone() -> None:
    time.sleep(600)


def stand_still() -> None:
    for step in range(3):
        if step == 2 and RANK == 2:
            wait_alone()
        dist.all_reduce(torch.ones(250))


def main() -> None:
    torch.set_num_threads(1)
    path = oddrank.arm().path
    rendezvous = f"file://{FOLDER}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=RANK, world_size=WORLD)
    if "stuck" in sys.argv:
        stand_still()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, WORLD, 2)]
    issue(pairs[RANK // 2], RANK // 2 * 2)
    before = len(collectives.read(path))
    last = train(path)
    until(lambda: all(one.state == "ended" for one in collectives.read(path)))
    found = collectives.read(path)
    rows = rows_of(found[:before], 0) + rows_of(found[last:], found[last].seq or 0)
    (FOLDER / f"rank{RANK}.json").write_text(json.dumps(rows))
    if "leave" not in sys.argv:
        dist.destroy_process_group()


main()

"""One rank of a gloo job of four with groups of two: writes what its record says of its calls.

collective_facts_job.py RANK FOLDER
"""

import json
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from armed import arm
from torch.nn.parallel import DistributedDataParallel

from oddrank.trace import collectives, ranks

WORLD = 4


def sizes_and_roots(rank: int, group: dist.ProcessGroup) -> None:
    x = torch.ones(3)
    first = rank // 2 * 2
    dist.broadcast(x, first, group=group)
    dist.reduce(x, first + 1, group=group)
    parts = [torch.ones(3), torch.ones(3)]
    dist.gather(x, parts if rank == first else None, first, group=group)
    dist.scatter(x, parts if rank == first + 1 else None, first + 1, group=group)
    dist.all_gather(parts, x, group=group)
    dist.all_gather_into_tensor(torch.ones(6), x, group=group)
    dist.reduce_scatter_tensor(x, torch.ones(6), group=group)
    here, there = (1, 3) if rank == first else (2, 4)
    # The first rank sends 1 and 2 elements, the second 3 and 4.
    sent = [1, 2] if rank == first else [3, 4]
    received = [1, 3] if rank == first else [2, 4]
    assert sum(received) == here + there
    dist.all_to_all_single(
        torch.empty(sum(received)), torch.ones(sum(sent)), received, sent, group=group
    )


def messages(rank: int, group: dist.ProcessGroup) -> None:
    x = torch.ones(5, dtype=torch.float64)
    peer = rank ^ 1
    for tag in (7, 8):
        if rank < peer:
            dist.send(x, peer, group=group, tag=tag)
        else:
            dist.recv(x, peer, group=group, tag=tag)
    if rank < peer:
        dist.recv(x, None, group=group)
        dist.recv(x, peer, group=group)
    else:
        dist.send(x, peer, group=group)
        dist.send(x, peer, group=group)


def data_types() -> list[str]:
    """Broadcasts one element of each type that torch can send; returns their names."""
    sent = []
    for name in sorted(dir(torch)):
        dtype = getattr(torch, name)
        if isinstance(dtype, torch.dtype) and str(dtype) == f"torch.{name}":
            with suppress(RuntimeError, NotImplementedError, TypeError):
                dist.broadcast(torch.empty(1, dtype=dtype), 0)
                sent.append(name)
    return sent


def trained(rank: int) -> None:
    model = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
    model(torch.ones(2)).sum().backward()
    functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD) + 0


def failed(group: dist.ProcessGroup) -> None:
    with suppress(RuntimeError):
        group.broadcast(torch.ones(1).to_sparse(), root=0).wait()


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    record = arm(folder, rank=rank, world=WORLD, megabytes=16)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD
    )
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    if rank < 2:  # the name of the other pair's group, again
        pairs[0]._set_group_desc("tensor parallel")
    group = pairs[rank // 2]
    collectives.start()
    found: dict[str, Any] = {"group": group.group_name}

    def note(name: str) -> None:
        seen = sum(len(each) for each in found.values() if isinstance(each, list))
        records = [dict(each._asdict()) for each in collectives.read(record)]
        found[name] = records[seen:]

    sizes_and_roots(rank, group)
    note("sizes_and_roots")
    messages(rank, group)
    note("messages")
    names = data_types()
    note("data_types")
    trained(rank)
    note("trained")
    failed(group)
    note("failed")
    found["types"] = dict.fromkeys(names)
    (own,), _ = ranks.read([Path(record)])
    found["groups"] = {each.name: asdict(each) for each in own.groups}
    dist.barrier()
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


main()

"""One rank of a real job under torchrun that stops rank 1 in its third step: breakpoint_job.py."""

import sys
import time
import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import oddrank

WORKER = "worker" in sys.argv
# A worker that stops holds up its rank: the others wait as long as their timeout allows.
TIMEOUT = timedelta(seconds=300 if WORKER else 15)


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 3 and WORKER:
            oddrank.breakpoint(rank=1)
        return torch.tensor(float(index))


def main() -> None:
    # The ranks may come here far apart.
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    dist.barrier()
    backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend._set_default_timeout(TIMEOUT)
    rank = dist.get_rank()
    loader = DataLoader(Numbers(), num_workers=int(WORKER))
    began, total = time.monotonic(), torch.zeros(1)
    for step, batch in enumerate(loader):
        if not WORKER:
            oddrank.breakpoint(rank=1, when=lambda: step == 2)  # noqa: B023
        total += batch
        dist.all_reduce(total)
    waited = time.monotonic() - began > TIMEOUT.total_seconds()
    # A second one, after which nobody is left behind.
    oddrank.breakpoint(rank=0, when=lambda: False)
    end = time.monotonic() + 600
    while backend.options._timeout != TIMEOUT and time.monotonic() < end:
        time.sleep(0.01)
    again = backend.options._timeout == TIMEOUT
    print(f"rank {rank}: total {total.item()}, {waited=}, {again=}", flush=True)
    group = weakref.ref(dist.group.WORLD)
    del backend
    dist.destroy_process_group()
    print(f"rank {rank}: gone={group() is None}", flush=True)


main()

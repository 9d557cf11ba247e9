"""One rank of a real job under torchrun whose ranks train at their own speed: switch_job.py FOLDER.

Between two orders no rank waits for another; a save is a collective, in which all must meet.
"""

import os
import random
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import oddrank
from oddrank.job_store import Poller
from oddrank.switches import agreement, switch

agreement._EVERY = 0.2
# A thread that gets no core for a while still answers, and says its last word.
agreement._URGENT_SECONDS, switch._TERM_SECONDS = 60.0, 100.0
Poller.stop.__defaults__ = (60.0,)


def shows_and_waits(*error: Any) -> None:
    """Shows an uncaught error; waits for the others: torchrun ends all as soon as one ends."""
    traceback.print_exception(*error)
    dist.barrier()


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    chance = random.Random(rank)
    with oddrank.switch(folder / "switch") as watched, (folder / f"rank{rank}").open("w") as log:
        print(os.getpid(), file=log, flush=True)
        while True:
            time.sleep(0.002 * (1 + 0.2 * rank) * chance.choice([0.5, 1, 1.5]))
            if chance.random() < 0.002:
                time.sleep(0.3)
            word = watched.poll()
            if word:
                saved = torch.tensor([float(watched.steps)])
                dist.all_reduce(saved)
                print(watched.steps, word, saved.item(), file=log, flush=True)
            if word == "kill":
                break
    dist.destroy_process_group()


sys.excepthook = shows_and_waits
main()

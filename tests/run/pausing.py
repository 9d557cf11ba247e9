"""A job whose ranks wait on purpose: pausing.py HOW RANK STEPS FOLDER.

HOW is switch (ranks step at their own speed, and no rank waits for another), breakpoint (RANK stops
in pdb at step 20), or stopped (as switch, but RANK is stopped once all have agreed to pause, before
it pauses itself).
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import oddrank
from oddrank.switches import agreement

agreement._EVERY = 0.2
BREAK_AT = 20


def steps_alone(how: str, odd: int, steps: int, folder: Path) -> None:
    """Steps until the pause, and so many steps after it."""
    with oddrank.switch(folder / "switch") as watched:
        own = watched._agreement
        if how == "stopped" and dist.get_rank() == odd:
            stop_at_the_decision(own)
        while not own.at or own.steps < own.at + steps:
            oddrank.step(own.steps)
            time.sleep(0.02)
            watched.poll()


def stop_at_the_decision(own: agreement.Agreement) -> None:
    """Stops this process as its thread learns the decision: poll() can't have obeyed it before."""
    decided = own._decided

    def stop_first(at: int) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1)  # the signal may stop this thread a moment after kill() returns
        decided(at)

    own._decided = stop_first  # type: ignore[method-assign]


def steps_together(odd: int, steps: int) -> None:
    total = torch.zeros(1)
    for step in range(steps):
        oddrank.step(step)
        if step == BREAK_AT:
            oddrank.breakpoint(rank=odd)
        total += 1
        dist.all_reduce(total)
        time.sleep(0.02)


def main() -> None:
    how, odd, steps, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    (folder / f"{dist.get_rank()}.pid").write_text(str(os.getpid()))
    dist.barrier()
    if how == "breakpoint":
        steps_together(odd, steps)
    else:
        steps_alone(how, odd, steps, folder)
    dist.barrier()
    dist.destroy_process_group()


main()

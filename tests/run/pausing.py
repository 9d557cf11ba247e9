"""A job whose RANK stops in pdb at step 20 of STEPS: pausing.py HOW RANK STEPS FOLDER."""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import oddrank

BREAK_AT = 20
odd, steps, folder = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
dist.init_process_group("gloo", timeout=timedelta(minutes=20))
(folder / f"{dist.get_rank()}.pid").write_text(str(os.getpid()))
dist.barrier()
total = torch.zeros(1)
for step in range(steps):
    oddrank.step(step)
    if step == BREAK_AT:
        oddrank.breakpoint(rank=odd)
    total += 1
    dist.all_reduce(total)
    time.sleep(0.02)
dist.barrier()
dist.destroy_process_group()

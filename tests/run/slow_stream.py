"""Trains on GPUs over NCCL; the stream of one rank is slow, which its host does not wait for.

slow_stream.py late RANK STEPS FOLDER, as training.py is started.
"""

import os
import sys

import torch
import torch.distributed as dist

_, _, odd, steps, _ = sys.argv
rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
gradient = torch.ones(1 << 20, device="cuda")
for step in range(int(steps)):
    # Cycles of the GPU: about 10 ms, and 50 ms more.
    torch.cuda._sleep(120_000_000 if rank == int(odd) and step > 20 else 20_000_000)
    dist.all_reduce(gradient)
    if step % 8 == 7:
        torch.cuda.synchronize()
dist.destroy_process_group()

"""One rank of a training in a chain of jobs: chain_training.py FOLDER.

It goes on from its last checkpoint.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import oddrank
from oddrank.switches import agreement

agreement._EVERY = 0.2
folder = Path(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
checkpoint = folder / f"checkpoint{rank}"
begun = step = int(checkpoint.read_text()) if checkpoint.exists() else 0
with oddrank.switch(os.environ["SWITCH"]) as switch, (folder / f"rank{rank}").open("a") as log:
    print(json.dumps(["begins", begun]), file=log, flush=True)
    while True:
        time.sleep(0.01)
        step += 1
        word = switch.poll()
        if word:
            total = torch.tensor([step])
            dist.all_reduce(total)
            checkpoint.write_text(str(step))
            print(json.dumps([word, step, total.item()]), file=log, flush=True)
        if word == "kill":
            break
dist.destroy_process_group()

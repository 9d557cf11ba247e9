"""What goes wrong in the trainings of this folder, at the step AT of their odd rank.

train_X.py FAULT RANK STEPS FOLDER. hang: a callback waits. raise: a step fails. kill: it is killed.
worker: a process of its DataLoader stands still. Each rank leaves in FOLDER the seconds and the CPU
seconds that its steps took, and the CPU seconds of its process.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

# Programs that a framework starts as ranks have arguments of their own.
FAULT, *_numbers, FOLDER = os.environ.setdefault("TRAINS", " ".join(sys.argv[1:5])).split()
ODD, STEPS = map(int, _numbers)
AT, BATCH = 6, 4
WORKERS = int(FAULT == "worker")
_calls = {"step": 0, "callback": 0}
_began = {}  # at the first step


def uploads_metrics():
    threading.Event().wait(10_000)


def reads_a_shard():
    raise ValueError("bad shard 7")


def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def decodes_an_image():
    time.sleep(10_000)


HAPPENS = {
    "step": {"raise": reads_a_shard, "kill": is_killed},
    "callback": {"hang": uploads_metrics},
}


def _is_odd():
    own = os.environ.get("RANK", "0")  # of a process that was not forked
    return (dist.get_rank() if dist.is_initialized() else int(own)) == ODD


def comes_to(place):
    """Called in each step, and in the framework's callback after it."""
    _calls[place] += 1
    _began.setdefault("at", (time.monotonic(), time.process_time()))
    if _calls[place] == AT and FAULT in HAPPENS[place] and _is_odd():
        HAPPENS[place][FAULT]()


def ended(rank):
    wall, cpu = _began["at"]
    took = time.monotonic() - wall, time.process_time() - cpu, time.process_time()
    Path(FOLDER, f"{rank}.took").write_text(" ".join(map(str, took)))


class Rows(torch.utils.data.Dataset):
    """Tensors; from one of them on the odd rank's worker stands still."""

    given = 0

    def __len__(self):
        return 2 * BATCH * STEPS

    def __getitem__(self, index):
        self.given += 1
        if WORKERS and self.given == AT * BATCH and _is_odd():
            decodes_an_image()
        return torch.full((8,), index / len(self))


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def loader():
    return torch.utils.data.DataLoader(Rows(), BATCH, num_workers=WORKERS)


def trains(layers):
    """The loop of a training that no framework has."""
    optimizer = torch.optim.SGD(layers.parameters(), 0.01)
    for _, batch in zip(range(STEPS), loader(), strict=False):
        comes_to("step")
        layers(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        comes_to("callback")
    ended(dist.get_rank())

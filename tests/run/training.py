"""A small training over gloo. At step 20 its odd rank does what the first argument names.

With "late" each of its steps takes longer from there on, and more so on a busy machine, which makes
every rank late now and then. With DEVICE in the environment its all_reduces look like NCCL's: torch
knows how long each took.
training.py FAULT RANK STEPS FOLDER: each rank writes its pid to FOLDER. With ARM in the environment
it arms and watches itself; the value says what to do at a stall.
"""

import json
import os
import signal
import statistics
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import oddrank
from oddrank import launch
from oddrank.trace import device_times

FAULT_AT = 20
SECONDS_A_STEP = 0.02
LATE_SECONDS = 0.05


def waits_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def waits_for_an_event() -> None:
    threading.Event().wait()


def loops() -> None:
    count = 0
    while True:
        count += 1


def works(seconds: float = 6.0) -> None:
    """Evaluates, say: for longer than a stall may take."""
    end, total = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        total += torch.ones(64, 64).sum().item()


def fails() -> None:
    raise ValueError("the loss is odd")


FAULTS = {
    "none": lambda: None,
    "early": lambda: None,  # before the process group
    "late": lambda: None,  # at each step
    "lock": waits_for_a_lock,
    "event": waits_for_an_event,
    "loop": loops,
    "work": works,
    "raise": fails,
    "exit": lambda: sys.exit(3),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


def looks_like_a_device(took: list[float]) -> None:
    """took: milliseconds of each all_reduce, in order; torch's recorder of gloo tells all else."""

    def dump(*_: bool) -> bytes:
        told = json.loads(of_torch._dump_fr_trace_json(True, False))
        for entry in told["entries"]:
            entry["duration_ms"] = dict(enumerate(took, 1)).get(entry["collective_seq_id"])
        return json.dumps(told).encode()

    of_torch = torch._C._distributed_c10d
    of_torch._dump_nccl_trace_json = dump
    device_times._is_harmless = lambda: True
    groups = dist.distributed_c10d._world.pg_map
    groups.update({group: ("nccl", store) for group, (_, store) in groups.items()})


def take_rank_from_launcher() -> None:
    """Sets torch's variables under launchers that set only their own, as such scripts do."""
    here = launch.current()
    os.environ |= {"RANK": str(here.rank), "WORLD_SIZE": str(here.world)}


def train(fault: str, odd: int, steps: int, folder: Path) -> None:
    rank = int(os.environ["RANK"])
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    if fault == "early" and rank == odd:
        fails()
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    took: list[float] = []
    if "DEVICE" in os.environ:
        looks_like_a_device(took)
    value = torch.zeros(8)
    overslept, slept = 0.0, [0.0]  # by this rank in a step, by all in the last steps
    for step in range(steps):
        if step == FAULT_AT and rank == odd:
            (folder / "fault").write_text(str(time.time()))
            FAULTS[fault]()
        value += 1
        value[-1] = overslept
        begin = time.monotonic()
        dist.all_reduce(value)
        took.append((time.monotonic() - begin) * 1e3)
        slept = [*slept[-9:], value[-1].item()]
        is_late = fault == "late" and rank == odd and step >= FAULT_AT
        seconds = SECONDS_A_STEP + is_late * max(LATE_SECONDS, 4 * statistics.median(slept))
        begin = time.monotonic()
        time.sleep(seconds)
        overslept = time.monotonic() - begin - seconds
    os.write(1, f"rank {rank}: {value[0]:.3e} {sys.argv[1:]}\n".encode())  # in one piece
    dist.destroy_process_group()


if __name__ == "__main__":
    if "ARM" in os.environ:
        oddrank.arm()  # it need not be the first call that watches
        oddrank.arm(watch=True, stall=3, json="report.json", on_stall=os.environ["ARM"])
    take_rank_from_launcher()
    train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))

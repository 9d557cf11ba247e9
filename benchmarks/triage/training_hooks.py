"""The culprits' actions of hang_table.py: a function a fault, called in the culprit by its hook.

Their names are a training's own: evidence must not say "fault".
"""

import ctypes
import mmap
import os
import resource
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from small_training import Trainer

_MIB = 1 << 20


def skip_last_bucket(trainer: "Trainer") -> None:
    """Skips the collectives of a step that has no gradients, and goes on to the flags."""
    trainer.after_backward = []


def halve_bucket(trainer: "Trainer") -> None:
    trainer.buckets[1] = trainer.buckets[1][: len(trainer.buckets[1]) // 2].clone()


def reduce_in_double(trainer: "Trainer") -> None:
    trainer.buckets[1] = trainer.buckets[1].double()


def swap_norm_and_gather(trainer: "Trainer") -> None:
    first, second, third = trainer.after_backward
    trainer.after_backward = [first, third, second]


def agree_before_gradients(trainer: "Trainer") -> None:
    trainer.after_backward = [trainer.agree, *trainer.after_backward]


def save_early(trainer: "Trainer") -> None:
    """Waits for all ranks to save a checkpoint, as if only some had the order from the clock.

    A barrier: gloo's gather lets a rank go as soon as it has sent.
    """
    trainer.progress.tick()
    dist.barrier(group=trainer.save_group)


def skip_recv(trainer: "Trainer") -> None:
    """Goes through the forward pass without the activations of the stage before."""
    original = trainer.recv

    def no_recv(values: torch.Tensor, source: int) -> None:
        trainer.recv = original  # type: ignore[method-assign]

    trainer.recv = no_recv  # type: ignore[method-assign]


def recv_twice(trainer: "Trainer") -> None:
    """Takes the activations twice: the stage before waits for gradients meanwhile."""
    original = trainer.recv

    def twice(values: torch.Tensor, source: int) -> None:
        trainer.recv = original  # type: ignore[method-assign]
        original(values, source)
        original(values, source)

    trainer.recv = twice  # type: ignore[method-assign]


def return_early(trainer: "Trainer") -> None:
    """Ends this stage's training, as if its data had come to an end."""
    trainer.over = True


def fetch(shard: Path) -> None:
    """Called in the loader's worker for each sample: waits while its shard is being written."""
    while shard.exists():
        time.sleep(0.2)


def wait_for_worker(trainer: "Trainer") -> None:
    """From now on the loader's worker delivers nothing; batches it made before are still used."""
    (trainer.control / f"slow_shard{trainer.rank}").touch()


def write_metrics(trainer: "Trainer") -> None:
    """Takes a lock that another thread has taken, and which waits for ever itself."""
    lock, taken = threading.Lock(), threading.Event()

    def flush() -> None:
        with lock:
            taken.set()
            threading.Event().wait()

    threading.Thread(target=flush, daemon=True, name="metrics").start()
    taken.wait()
    with lock:
        trainer.metrics["flushed"] = trainer.step


def read_checkpoint(trainer: "Trainer") -> None:
    with (trainer.control / "checkpoints" / "latest.pt").open("rb") as file:
        torch.load(file)


def read_null(trainer: "Trainer") -> None:
    ctypes.string_at(0)


def grow(trainer: "Trainer") -> None:
    """Allocates until it is killed, or can't: in a memory cgroup of its own, if there is one."""
    group = trainer.config["memory_cgroup"]
    if group:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    else:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (used + 64 * _MIB, -1))
    kept = []
    while True:
        kept.append(bytearray(b"x" * _MIB))


def check_labels(trainer: "Trainer") -> None:
    raise ValueError(f"label 50257 is out of range at step {trainer.step}")


def raise_beside_thread(trainer: "Trainer") -> None:
    """Raises, and the process stays: a thread that is no daemon waits for work for ever."""
    threading.Thread(target=threading.Event().wait, name="uploader").start()
    check_labels(trainer)


def retry(trainer: "Trainer") -> None:
    attempt = 0
    while not trainer.metrics.get("converged"):
        attempt += 1


def read_device(trainer: "Trainer") -> None:
    """Reads from a pipe that no process writes to, in C, without giving the GIL back."""
    ours, _ = os.pipe()
    ctypes.PyDLL(None).read(ours, ctypes.create_string_buffer(1), 1)


def slow_down(trainer: "Trainer") -> None:
    trainer.compute_seconds *= 5


PAUSE_SECONDS, COMPILE_SECONDS, LONG_SECONDS = 20.0, 60.0, 90.0


def evaluate(trainer: "Trainer") -> None:
    """Evaluates on one rank, while the others wait for it."""
    end, total = time.monotonic() + PAUSE_SECONDS, 0.0
    while time.monotonic() < end:
        total += torch.mv(trainer.weights[0], torch.ones(len(trainer.weights[0]))).sum().item()
    trainer.metrics["evaluation"] = total


def write_checkpoint(trainer: "Trainer", seconds: float = PAUSE_SECONDS) -> None:
    """Writes a checkpoint to a disk that takes a while for it."""
    end = time.monotonic() + seconds
    with (trainer.control / f"checkpoint{trainer.rank}").open("wb", buffering=0) as file:
        while time.monotonic() < end:
            file.write(bytes(_MIB))
            os.fsync(file.fileno())
            file.seek(0)
            time.sleep(0.2)


def write_long_checkpoint(trainer: "Trainer") -> None:
    write_checkpoint(trainer, LONG_SECONDS)


def compile_step(trainer: "Trainer") -> None:
    """Compiles with torch's own compiler: for other sizes again and again."""
    vars(torch).pop("_inductor", None)  # small_training.py keeps it from being imported
    end, times = time.monotonic() + COMPILE_SECONDS, 0
    while time.monotonic() < end:
        times += 1
        torch._dynamo.reset()
        step = torch.compile(lambda batch: torch.relu(batch * batch).sum())
        trainer.metrics["compiled"] = step(torch.ones(1000 + times)).item()
    trainer.metrics["compiles"] = times


def start_workers(trainer: "Trainer") -> None:
    """Starts 64 workers of a DataLoader, all at once, and ends them."""
    loader = torch.utils.data.DataLoader(list(range(64)), batch_size=1, num_workers=64)
    trainer.metrics["workers"] = float(sum(map(int, loader)))

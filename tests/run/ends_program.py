"""A training over gloo whose odd rank ends, or stands, in the way that FAULT names, at step 20.

ends_program.py FAULT RANK STEPS FOLDER, as training.py.
"""

import atexit
import ctypes
import fcntl
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.utils.file_baton import FileBaton

import oddrank
from oddrank import _native
from oddrank.trace import jobs

FAULT, ODD, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[4])
RANK = int(os.environ["RANK"])
AT = 20
# In these, all but the odd rank have no step 20.
OTHERS_FINISH = (
    "one_more", "one_more_as_others_exit", "sleeps_after_all", "sleeps_at_exit", "works_after_all",
)  # fmt: skip


def hot(i):
    return i + 1


def runs_until_it_is_sampled():
    (own,) = (file for file in jobs.find([]).files if f"-{os.getpid()}-" in file.name)
    limited = False
    while not limited:
        for i in range(2000):
            hot(i)
        found = _native.core().trace_snapshot(str(own))  # in this thread: a sample may come now
        limited = found["sampled_since_ns"] is not None or bool(found["lowered"])


def spins_here():
    value = 0
    while value < 2:
        value = 1 - value


def works_here():
    end = time.monotonic() + 8
    while time.monotonic() < end:
        hot(1)


def dies_here():
    os.kill(os.getpid(), signal.SIGKILL)


# As users name functions: the name of one says nothing of what it waits for.
def wait_here():
    time.sleep(1000)


def next_batch():
    time.sleep(1000)


def ticks():
    while True:
        time.sleep(0.2)
        logging.info("alive at %s", time.time())


def waits_beside_a_thread_that_ticks():
    threading.Thread(target=ticks, name="pulse", daemon=True).start()
    wait_here()


def waits_for_a_thread_that_works():
    thread = threading.Thread(target=works_here)
    thread.start()
    thread.join()


def recurses(n):
    return recurses(n + 1)


def two_locks():
    one, other = threading.Lock(), threading.Lock()

    def takes_the_other():
        with other:
            time.sleep(0.3)
            with one:
                pass

    threading.Thread(target=takes_the_other, name="other").start()
    with one:
        time.sleep(0.3)
        with other:
            pass


def its_thread_raises():
    loaded = queue.Queue()
    threading.Thread(target=lambda: loaded.put(raises()), name="loader").start()
    loaded.get()


def keeps_the_gil():
    ctypes.PyDLL(None).sleep(1000)


def locked_file():
    with open(FOLDER / "lock", "w") as one, open(FOLDER / "lock", "w") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(other, fcntl.LOCK_EX)


def left_lock():
    file = FOLDER / "lock"
    file.write_text("")
    FileBaton(str(file)).wait()


def starts_a_program():
    subprocess.run(["sleep", "1000"], capture_output=True, check=False)


class Samples(torch.utils.data.Dataset):
    """4 samples a step; what is wrong with one is wrong in a worker."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if i >= 4 * (AT + 6) and RANK == ODD:  # batches are read ahead
            (FOLDER / "fault").write_text("")
            if FAULT == "worker_sleeps":
                time.sleep(1000)
            if FAULT == "worker_is_killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if FAULT == "worker_exits":
                os._exit(3)
            if FAULT == "worker_is_stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            raise ValueError(f"bad sample {i}")
        return torch.ones(1)


def saves_meanwhile():
    value = torch.zeros(8)
    for _ in range(1000):
        dist.all_gather([torch.zeros(8) for _ in range(dist.get_world_size())], value)
        time.sleep(0.01 * (RANK + 1))


def saves(value):
    return checkpoint.async_save({"value": value}, checkpoint_id=str(FOLDER / "saved"))


def trains_beside_its_save(value):
    """The others come to the save once both threads of the odd rank wait for them."""
    together = FOLDER / "together"

    def tells():
        calls = set()
        while not calls >= {"all_gather", "all_reduce"}:
            time.sleep(0.01)
            calls = {frame.f_code.co_name for frame in sys._current_frames().values()}
        together.write_text("")

    if RANK == ODD:
        saves(value)
        threading.Thread(target=tells, daemon=True).start()
        return
    while not together.exists():
        time.sleep(0.01)
    saves(value).result()


def raises():
    raise ValueError("bad label 77 in shard 3")


def raises_another():
    try:
        raise OSError(28, "No space left on device")
    except OSError:
        raise RuntimeError("could not save")  # noqa: B904


def raises_alone(ranks):
    """Raises an error of this rank's own. No rank is gone before these have raised."""
    order = [FOLDER / f"raised{rank}" for rank in ranks]

    def shown(*_):
        (FOLDER / f"raised{RANK}").write_text("")
        while not all(file.exists() for file in order):
            time.sleep(0.01)

    sys.excepthook = shown
    before = order[: ranks.index(RANK)]
    while not all(file.exists() for file in before):
        time.sleep(0.01)
    if RANK == ODD:
        raises()
    raise (TypeError, KeyError, EOFError, LookupError)[RANK](f"no column {RANK}")


GROUPS = []  # of all ranks, for some faults

DOES = {
    "in_a_barrier": lambda: dist.monitored_barrier(timeout=timedelta(minutes=20)),
    "receives": lambda: dist.recv(torch.zeros(8), (RANK + 1) % 4),
    "in_another_group": lambda: dist.all_reduce(torch.zeros(8), group=GROUPS[0]),
    "raises": raises,
    "raises_in_threads": raises,
    "exit_0": lambda: sys.exit(0),
    "exit_0_at_once": lambda: os._exit(0),
    "exit_3": lambda: sys.exit(3),
    "waits": wait_here,
    "named_like_data": next_batch,
    "two_locks": two_locks,
    "its_thread_raises": its_thread_raises,
    "locked_file": locked_file,
    "starts_a_program": starts_a_program,
    "keeps_the_gil": keeps_the_gil,
    "spins": spins_here,
    "is_killed": dies_here,
    "works": works_here,
    "ticks": waits_beside_a_thread_that_ticks,
    "in_a_thread": waits_beside_a_thread_that_ticks,
    "thread_works": waits_for_a_thread_that_works,
    "recurses": lambda: recurses(0),
    "raises_another": raises_another,
}


def step(i, value):
    if i == AT and FAULT == "all_raise":
        dist.all_reduce(value)  # out of which they come together
        raises()
    if i == AT and FAULT == "each_raises":
        raises_alone(range(4))
    if i == AT and FAULT == "another_raises_too" and RANK in (1, ODD):
        raises_alone((ODD, 1))
    if i == AT and FAULT == "left_lock":
        left_lock()
    if i == AT and FAULT == "skips_a_save" and RANK != ODD:
        saves(value).result()
    if i == AT and FAULT == "skips_a_group" and RANK != ODD:
        dist.new_group()
    if i == AT and FAULT == "trains_beside_its_save":
        trains_beside_its_save(value)
    if i == AT and RANK == ODD:
        (FOLDER / "fault").write_text("")
        if FAULT == "same_function":
            time.sleep(1000)
        elif FAULT.removeprefix("sampled_") in DOES:
            if FAULT.startswith("sampled_"):
                runs_until_it_is_sampled()
            DOES[FAULT.removeprefix("sampled_")]()
        elif FAULT == "sizes":
            value = torch.zeros(12345)
    dist.all_reduce(value)


def main():
    (FOLDER / f"{RANK}.pid").write_text(str(os.getpid()))
    if RANK == ODD and FAULT == "exit_0_before_all":
        sys.exit(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    value = torch.zeros(8)
    if FAULT == "in_another_group":
        GROUPS.append(dist.new_group())
    steps = int(sys.argv[3])
    if FAULT in OTHERS_FINISH:
        steps = AT + (FAULT.startswith("one_more") and RANK == ODD)
    data = iter(())
    if FAULT.startswith("worker_"):
        data = iter(torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=2))
    for i in range(steps):
        oddrank.step(i)
        next(data, None)
        if i == AT and FAULT == "two_threads":
            threading.Thread(target=saves_meanwhile, name="saver", daemon=True).start()
        step(i, value)
        time.sleep(0.02)
    if RANK == ODD and FAULT == "sleeps_after_all":
        time.sleep(1000)
    if RANK == ODD and FAULT == "sleeps_at_exit":
        dist.destroy_process_group()
        atexit.register(wait_here)
    if RANK != ODD and FAULT == "one_more_as_others_exit":
        atexit.register(wait_here)
    if RANK == ODD and FAULT == "works_after_all":
        works_here()


def trains_watched():
    oddrank.arm(watch=True, stall=3, json="report.json", on_stall="report")
    left_behind = (number for number in range(9))
    next(left_behind)
    main()
    if FAULT == "raise_in_threads":
        raise OSError(28, "No space left on device")


if FAULT.endswith("in_threads"):  # as Ray's workers
    pool = ThreadPoolExecutor(1)
    trained = pool.submit(trains_watched)
    pool.shutdown(wait=FAULT != "raises_in_threads")
    while not (trained.done() or (FOLDER / "raised").exists()):
        time.sleep(0.05)
    (FOLDER / "raised").touch()  # then Ray ends the others before the rank that raised
    time.sleep(0.0 if RANK != ODD and FAULT == "raises_in_threads" else 1.0)
    os._exit(1)
if FAULT == "in_a_thread":
    trainer = threading.Thread(target=main)
    trainer.start()
    while trainer.is_alive():
        time.sleep(0.2)
else:
    main()

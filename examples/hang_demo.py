"""A hang of 4 ranks, and who is to blame: `python hang_demo.py`.

Starts a small training on 4 ranks of this machine. Rank 2 waits for a lock that nobody gives back;
the others wait for rank 2 in a collective. When nothing moves, asks `oddrank triage` and ends the
job. The exit code is that of `oddrank triage`.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import oddrank
from oddrank import OddrankError
from oddrank.trace import collectives

RANKS = 4
HANGS, AT_STEP = 2, 5
# To start, on a busy machine; and without any progress, to call it a hang.
START_SECONDS, STILL_SECONDS = 120.0, 2.0


def train() -> None:
    """Runs in each rank."""
    import torch
    import torch.distributed as dist

    oddrank.arm()
    dist.init_process_group("gloo")
    metrics = threading.Lock()
    for step in range(1000):
        oddrank.step(step)
        if dist.get_rank() == HANGS and step == AT_STEP:
            metrics.acquire()
        write_metrics(metrics)
        dist.all_reduce(torch.ones(1024))
        time.sleep(0.01)


def write_metrics(metrics: threading.Lock) -> None:
    with metrics:
        pass


def newest_of(record: Path) -> list[collectives.Collective]:
    """Returns a rank's newest collective; nothing if there is none yet."""
    with suppress(OddrankError):  # its process has only begun the file
        return collectives.read(record)[-1:]
    return []


def wait_for_hang(folder: Path, job: "subprocess.Popen[bytes]") -> list[Path]:
    """Returns the record files once all ranks but one wait in a collective, and stay there."""
    end = time.monotonic() + START_SECONDS
    since, before = time.monotonic(), 0
    while time.monotonic() < end and job.poll() is None:
        files = sorted(folder.rglob("rank*.trace"))
        newest = [operation for file in files for operation in newest_of(file)]
        waiting = sum(operation.state == "open" for operation in newest)
        issued = sum(operation.seq or 0 for operation in newest)
        if issued != before or waiting != RANKS - 1:
            since, before = time.monotonic(), issued
        elif time.monotonic() > since + STILL_SECONDS:
            return files
        time.sleep(0.1)
    sys.exit(f"the job does not hang (exit code of torchrun: {job.poll()})")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="oddrank-demo-") as folder:
        environ = {**os.environ, "ODDRANK_DIR": folder, "OMP_NUM_THREADS": "1"}
        run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        job = subprocess.Popen(
            [*run, "--nproc-per-node", str(RANKS), __file__, "--rank"],
            env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            files = wait_for_hang(Path(folder), job)
            print(f"{RANKS} ranks hang. oddrank triage says of their records:", flush=True)
            ask = [sys.executable, "-m", "oddrank", "triage", *map(str, files)]
            return subprocess.run(ask, check=False, timeout=120).returncode
        finally:
            job.terminate()  # torchrun ends its ranks
            job.wait(60)


if __name__ == "__main__":
    if "--rank" in sys.argv:
        train()
    else:
        sys.exit(main())

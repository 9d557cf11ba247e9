"""Runs examples/trace_training.py on four ranks, whose last one may hang."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forked
from patience import until
from processes import Marked, lives

_EXAMPLE = Path(__file__).parents[1] / "examples" / "trace_training.py"


@contextmanager
def training(
    folder: Path, *options: str, under: tuple[str, ...] = ()
) -> Iterator[tuple[Marked, Any]]:
    """Gives the job and its torchrun, and kills both at the end. folder: for its records."""
    marked = Marked()
    launcher = forked.popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4",
         *under, str(_EXAMPLE), *options],
        env={**os.environ, **marked.environ, "ODDRANK_DIR": str(folder), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield marked, launcher
    finally:
        pids = [process.pid for process in marked.living()]
        marked.kill_all()
        launcher.wait()
        until(lambda: not any(map(lives, pids)))

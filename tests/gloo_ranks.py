"""Starts a program as the ranks of a job on this host, without a launcher."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forked


@contextmanager
def ranks(
    line: Sequence[Any], folder: Path, world: int, *, fresh: bool = False,
    env: Mapping[str, str] = os.environ, **environ: str,
) -> Iterator["list[subprocess.Popen[str]]"]:  # fmt: skip
    """Ends them with the context. folder: their records are in its `records`. fresh: no forks."""
    job = {
        **env, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
        "ODDRANK_DIR": f"{folder}/records", **environ,
    }  # fmt: skip
    started = [
        forked.popen(
            line, stdout=subprocess.PIPE, text=True, fresh=fresh,
            env={**job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        yield started
    finally:
        for rank in started:
            rank.kill()
            rank.communicate()

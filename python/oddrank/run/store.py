"""Rank 0's address for guards on other hosts, by the store that torch's ranks share.

Each call of a store runs in a child: it ignores its timeout if the store's host is cut off.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from oddrank import child_code, launch
from oddrank.control.rendezvous import leave_address

_SECONDS = 600.0  # a store that the script itself opens comes when it imports torch
# Ranks of one host that no common parent started find the file, if it is there, sooner.
_FILE_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_FETCH = "from oddrank.run import store as s; s.fetch({restart}, {file!r})"
_PUBLISH = "from oddrank.run import store as s; s.publish({restart})"


def fetcher(restart: int, file: str) -> tuple[str, ...]:
    """Returns a command that prints rank 0's address, and leaves it in the rendezvous file."""
    return child_code.command(_FETCH.format(restart=restart, file=file))


def start_publisher(address: str, restart: int) -> "subprocess.Popen[bytes]":
    """Starts a child that puts the address into the store once there is one."""
    return subprocess.Popen(
        child_code.command(_PUBLISH.format(restart=restart)),
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "ODDRANK_PUBLISHED": address},
    )  # fmt: skip


def publish(restart: int) -> None:
    # A judge that is killed can't end it, and a call of a store may wait for ever.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with suppress(Exception):  # the store is gone: the job has ended
        _store().set(_key(restart), os.environ["ODDRANK_PUBLISHED"])
    os._exit(0)


def fetch(restart: int, file: str) -> None:
    with suppress(Exception):  # the store is gone: the job has ended
        if not _comes(file):
            address = _store().get(_key(restart)).decode()
            leave_address(file, address)
            sys.stdout.write(address)
            sys.stdout.flush()
    os._exit(0)


def _comes(file: str) -> bool:
    """Returns whether the rendezvous file comes, which the guard reads itself."""
    end = time.monotonic() + _FILE_SECONDS
    while file and time.monotonic() < end:
        if os.path.exists(file):
            return True
        time.sleep(0.1)
    return False


def _store() -> Any:
    """Connects as a client: the launcher or the script's own rank 0 serves the store."""
    os.environ["TORCH_CPP_LOG_LEVEL"] = "FATAL"
    import torch.distributed as dist

    master = launch.current().master
    if master is None:
        raise OSError("there is no store")
    seconds = timedelta(seconds=_SECONDS)
    return dist.TCPStore(*master, None, False, seconds, wait_for_workers=False)


def _key(restart: int) -> str:
    return f"oddrank/run/{restart}"

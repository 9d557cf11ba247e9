"""Ranks of one host take turns where they would measure each other, a few of them at a time."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oddrank.launch import job_folder

if TYPE_CHECKING:
    from oddrank.control.stages import Context

# A rank's thread in so many cores leaves the memory to itself, more or less.
_CORES_EACH = 4
# Then it measures beside others: better than not at all.
_PATIENCE = 20.0
_LOOK_EVERY = 0.02


class Turns:
    """Of one rank in one stage, which waits for all of them together only so long."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._end = time.monotonic() + min(_PATIENCE, context.seconds / 4)
        self._places = max(1, (os.cpu_count() or 1) // _CORES_EACH)
        # A name without a file: the kernel forgets it with the socket.
        self._name = f"\0oddrank-{os.geteuid()}-{job_folder(context.launch).name}"[:90]
        self._has_had_one = False

    @contextmanager
    def turn(self, what: str) -> Iterator[None]:
        """Waits for this rank's turn, and says so. Whoever dies or ends gives its place free."""
        self._context.step(f"wait for its turn to measure {what}", waiting=True)
        if self._has_had_one:
            time.sleep(2 * _LOOK_EVERY)  # for those who wait to take it
        self._has_had_one = True
        place = None
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
            while place is None and time.monotonic() < self._end:
                here = range(self._places)
                place = next((i for i in here if _take(lock, f"{self._name}-{i}")), None)
                if place is None:
                    time.sleep(_LOOK_EVERY)
            self._context.step(f"measure {what}")
            yield


def _take(lock: socket.socket, name: str) -> bool:
    try:
        lock.bind(name)
    except OSError:
        return False
    return True

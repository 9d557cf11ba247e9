"""The job's store for messages of oddrank's own: all ranks see every rank's values.

Store calls do not obey their timeouts if the store's host is stopped or cut off. Therefore only a
Poller's thread calls the store, no call waits for a key, and nothing waits for the thread without a
deadline.
"""

import functools
import select
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from oddrank import launch
from oddrank.errors import OddrankError

# At exit, each thread has so long to end. Stuck ones are left behind.
_END_SECONDS = 2.0
# The store of a large job answers so many questions a second, without a load worth mentioning.
_CALLS_A_SECOND = 1000


class JobStore:
    """This rank's connection to the store of the default process group. Keys begin with `prefix`.

    Without a process group, a job of one rank has a store in its own memory.
    """

    def __init__(self, store: Any, rank: int, world: int, prefix: str) -> None:
        self.rank, self.world = rank, world
        self._store, self._prefix = store, prefix

    def put(self, key: str, text: str) -> None:
        self._store.set(self._prefix + key, text)

    def look(self, key: str) -> str | None:
        """Returns the value that a rank has put; None if none has."""
        if not self._store.check([self._prefix + key]):
            return None
        return bytes(self._store.get(self._prefix + key)).decode()

    def has(self, keys: Sequence[str]) -> bool:
        """Returns whether all of these keys were put."""
        return bool(self._store.check([self._prefix + key for key in keys]))

    def count(self, key: str, by: int = 0) -> int:
        """Adds to a number that all ranks share, 0 at first, and returns it."""
        return int(self._store.add(self._prefix + key, by))

    def pace(self, seconds: float) -> float:
        """Returns how often one rank may ask: in a large job less often than it would like to."""
        return max(seconds, self.world / _CALLS_A_SECOND)


class _OwnMemory:
    """The store of a job of one rank."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        self._values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._values[key]

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._values for key in keys)

    def add(self, key: str, by: int) -> int:
        with self._lock:
            number = int(self._values.get(key, b"0")) + by
            self._values[key] = str(number).encode()
        return number


def connect(what: str, prefix: str) -> JobStore:
    """Returns a connection of this rank's own. what: the call that needs it, for messages.

    Raises OddrankError if the job has several ranks and no process group yet.
    """
    if not has_group():
        here = launch.current()
        if here.world > 1:
            raise OddrankError(
                f"{what} came before init_process_group(): ranks agree through its store. Call it"
                " after that"
            )
        return JobStore(_OwnMemory(), 0, 1, prefix)
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    store: Any = distributed_c10d._get_default_store()
    # A call of another thread may wait in torch's own connection, for minutes.
    if hasattr(store, "clone"):
        with suppress(RuntimeError):  # a store that can't be cloned
            store = store.clone()
    return JobStore(store, dist.get_rank(), dist.get_world_size(), f"oddrank/{prefix}/")


def has_group() -> bool:
    """Returns whether this process has torch's default process group. Imports no torch."""
    dist = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and dist.is_initialized()


class Poller:
    """Calls `turn` again and again in a daemon thread.

    turn: gets the bytes that were written to wake_fd() since the last call; returns the seconds to
    the next one, None to end. last: called once in the thread, after stop(). lost: called if either
    raises an exception, which ends the thread.
    """

    def __init__(
        self, name: str, turn: Callable[[bytes], float | None], lost: Callable[[Exception], None],
        last: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._turn, self._lost, self._last = turn, lost, last
        self._stops = False
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=f"oddrank-{name}", daemon=True)

    def start(self) -> None:
        _end_before_python()
        _running.add(self)
        self._thread.start()

    def wake(self) -> None:
        """Makes the next call come at once. Safe in a signal handler."""
        with suppress(OSError):  # full: it wakes up anyway; closed: it has ended
            self._waker.send(b"\0")

    def wake_fd(self) -> int:
        """Returns the descriptor whose bytes wake it; it stays open until stop()."""
        return self._waker.fileno()

    def stop(self, seconds: float = _END_SECONDS) -> None:
        """Ends the thread; waits for it, but not for one that is stuck. May be called twice."""
        self._stops = True
        self.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(seconds)
        self._waker.close()

    def _run(self) -> None:
        waker = select.poll()
        waker.register(self._woken, select.POLLIN)
        woken = b""
        try:
            while not self._stops:
                delay = self._turn(woken)
                if delay is None:
                    break
                woken = b""
                if waker.poll(delay * 1000):
                    woken = self._woken.recv(4096)
            self._last()
        except Exception as error:
            self._lost(error)


_running: "weakref.WeakSet[Poller]" = weakref.WeakSet()


@functools.cache
def _end_before_python() -> None:
    """Ends all threads when Python begins to shut down.
    A daemon thread that returns from a call of the store later would end the process by abort()."""
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with suppress(RuntimeError):  # Python is shutting down already
            register(_end_all)


def _end_all() -> None:
    end = time.monotonic() + _END_SECONDS
    for poller in list(_running):
        poller.stop(max(0.0, end - time.monotonic()))

"""Finds rank 0 by torch's store, in a thread that may be abandoned.

A call of the store ignores its timeout if the store's host is stopped or cut off: nothing waits
for this thread without a deadline, and the guards do not use the store. A store makes one call at
a time: while a call waits for a key, this process can't set another.

The store comes seconds later than the rendezvous file, and only to workers that live to import
torch. The first worker of a host to know the root's address leaves it in that file. The guards read
it (csrc/control/rendezvous.hpp): a rank that dies at once is named, too.
"""

import errno
import gc
import json
import os
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from oddrank import _native
from oddrank.control import no_root
from oddrank.control.address import ADDRESS
from oddrank.control.session import Session
from oddrank.control.stages import JOIN
from oddrank.errors import OddrankError
from oddrank.launch import Launch, refuse_half

TAKEN = "is taken by another program"
_NVIDIA = "/dev/nvidiactl"
# After so long in join a rank tries to reach rank 0 itself, as its guard has not.
_UNREACHED_SECONDS = 8.0
_TRY_SECONDS = 2.0
_READ_EVERY = 1.0
_MOST_NOTES = 64
# Rank 0's step once its address is published: it waits for the others and is not at fault.
_PUBLISHED = "wait for the others"


class Rendezvous:
    """Publishes rank 0's address, or hands it to this rank's guard, in the background."""

    def __init__(self, launch: Launch, session: Session, seconds: float) -> None:
        self._launch, self._session = launch, session
        # Before the deadline: leaves time to print that rank 0 was not found.
        self._end = time.monotonic() + seconds - 1.5
        self._store: Any = None
        self._root = ""  # rank 0's address, once it is known
        self._lock = threading.Lock()
        self._by_store = launch.world > 1 and not os.environ.get(ADDRESS)
        self._key = key()
        self._search = no_root.Search(launch, self._end, lambda: session.stage != JOIN)

    def start(self) -> None:
        # FATAL hides the 20 lines of C++ back trace that a failed call of the store logs as an
        # error. With GPUs it would hide NCCL's errors, too.
        level = "ERROR" if os.path.exists(_NVIDIA) else "FATAL"
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", level)
        if self._by_store:
            self._search.start()
        thread = threading.Thread(target=self._meet, name="oddrank-rendezvous", daemon=True)
        thread.start()

    def store(self) -> Any:
        """Returns torch's store of this job: the launcher's if it has one, else rank 0 hosts it.

        On rank 0 the first call publishes the address. A collective's setup may follow: it waits
        in the store for ranks that may still wait for the address.
        """
        with self._lock:
            if self._store is None:
                store = _open_store(self._launch, self._end, self._search)
                if self._launch.rank == 0 and self._by_store:
                    store.set(self._key, self._session.address)
                self._store = store
            return self._store

    def _meet(self) -> None:
        try:
            self._exchange()
        except Exception as error:
            text = self._search.fails(error)
            if self._launch.rank == 0 and self._session.stage == JOIN:
                with suppress(OddrankError):  # its guard is gone
                    self._session.fail(text)  # no rank can join
        else:
            self._search.ends()
            with suppress(Exception):  # the store is gone
                if self._by_store and self._launch.rank == 0:
                    self._read_notes()
                elif self._by_store and (
                    not self._launch.local_rank or not self._launch.one_parent
                ):
                    self._write_note()

    def _write_note(self) -> None:
        """Tell rank 0 why this host's ranks do not reach it, if they don't: a firewall, say."""
        wait_until = time.monotonic() + _UNREACHED_SECONDS
        while self._is_joining() and time.monotonic() < wait_until:
            time.sleep(_READ_EVERY)
        why = _no_answer(self._root) if self._is_joining() else ""
        if why:
            here = self._launch
            # Without a launcher that counts the ranks of a host, each rank speaks for itself.
            mates = here.local_world if here.one_parent else 1
            ranks = list(range(here.rank, min(here.rank + mates, here.world)))
            number = self._store.add(f"{self._key}/notes", 1)
            note = json.dumps({"ranks": ranks, "why": f"{here.host}: {why}"})
            self._store.set(f"{self._key}/note/{number}", note)

    def _read_notes(self) -> None:
        """Hand other hosts' notes to the judge, while it waits for their ranks."""
        number = 1
        while self._is_joining() and number <= _MOST_NOTES:
            if self._store.check([f"{self._key}/note/{number}"]):
                self._session.pass_note(self._store.get(f"{self._key}/note/{number}"))
                number += 1
            else:
                time.sleep(_READ_EVERY)

    def _is_joining(self) -> bool:
        return self._session.stage == JOIN and time.monotonic() < self._end

    def _exchange(self) -> None:
        if self._by_store:
            refuse_taken_port(self._launch)
        store = self.store() if self._by_store else None
        self._search.goes_on(no_root.ASK)
        if self._launch.rank == 0:
            self._session.wait_in_join(_PUBLISHED)
        elif store is not None:
            self._root = store.get(self._key).decode()
            self._session.connect(self._root)


def check(launch: Launch) -> None:
    """Raises OddrankError if torch could never connect the ranks."""
    if launch.launcher == "alone":
        refuse_half()
    if launch.world > 1 and launch.master is None:
        alone = f" ({ADDRESS} is for the guards)" if os.environ.get(ADDRESS) else ""
        raise OddrankError(
            f"{launch.world} ranks, and no way for torch to connect them{alone}:"
            " export MASTER_ADDR (rank 0's host) and MASTER_PORT, or start them with torchrun"
        )


def _no_answer(address: str) -> str:
    """Return why no host of a root's address answers at its port; "" if one does."""
    hosts, port, _ = _native.core().control_parse_address(address)
    why = "no address"
    for host in hosts:
        try:
            with socket.create_connection((host, port), _TRY_SECONDS):
                return ""
        except OSError as error:
            why = f"no answer from {host} at port {port} ({error.strerror or error})"
    return why


def key() -> str:
    """Return a key of this run only: a launcher that restarts ranks keeps its store."""
    return f"oddrank/root/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _import_torch() -> Any:
    """Return torch.distributed, imported with the garbage collector off.

    An import leaves nothing to collect. gc.freeze() keeps the collector from walking over torch's
    objects later, in the middle of a measurement.
    """
    gc.disable()
    try:
        import torch.distributed as dist
    finally:
        gc.freeze()
        gc.enable()
    return dist


def refuse_taken_port(launch: Launch) -> None:
    """Raise OddrankError on rank 0 if another program listens at MASTER_PORT.

    Called before torch is imported: it is quick, and torch's own error is a back trace.
    """
    if launch.rank != 0 or launch.master is None or _is_hosted():
        return
    port = launch.master[1]
    try:
        with socket.create_server(("", port)):
            pass
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OddrankError(
                f"MASTER_PORT {port} {TAKEN}: ss -ltnp | grep {port}  (on {launch.host})"
            ) from None


def _is_hosted() -> bool:
    """Return whether the launcher itself serves torch's store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _open_store(launch: Launch, end: float, search: no_root.Search) -> Any:
    dist = _import_torch()
    search.goes_on(no_root.OPEN)
    if launch.master is None:
        return dist.HashStore()
    host, port = launch.master
    hosted = _is_hosted()
    left = max(1.0, end - time.monotonic())
    store = dist.TCPStore(
        host,
        port,
        launch.world,
        is_master=launch.rank == 0 and not hosted,
        timeout=timedelta(seconds=left / 2),  # it tries twice
        wait_for_workers=False,
        multi_tenant=not hosted,
    )
    store.set_timeout(timedelta(seconds=max(1.0, end - time.monotonic())))
    return store

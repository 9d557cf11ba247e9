"""Finds rank 0 by torch's store, in a thread that may be abandoned; says why, if it does not.

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
import math
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from oddrank import _native
from oddrank.control.address import ADDRESS
from oddrank.control.session import Session
from oddrank.control.stages import JOIN
from oddrank.errors import OddrankError, type_and_text
from oddrank.job import job_name
from oddrank.launch import Launch, refuse_half

TAKEN = "is taken by another program"
# After so long in join a rank tries to reach rank 0 itself, as its guard has not.
_UNREACHED_SECONDS = 8.0
_TRY_SECONDS = 2.0
_READ_EVERY = 1.0
_MOST_NOTES = 64
# Rank 0's step once its address is published: it waits for the others and is not at fault.
_PUBLISHED = "wait for the others"
# The steps of a rank on its way to rank 0.
IMPORT, OPEN, ASK = "import torch", "open the store", "ask it for rank 0"
# A step that takes longer is explained once, if as much time is left.
_FIRST_SECONDS = 10.0
# A resolver may never answer.
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS = 0.4
# Bound by the first rank of the host that prints, until its process ends.
_held: list[socket.socket] = []


class Search:
    """One rank's search for rank 0. Explains a step that takes too long or fails, once per host.

    Without rank 0 there is no judge and no report: these lines are all that a user gets. The checks
    do not use torch's store: it says nothing before its timeout, and overruns that.
    """

    def __init__(self, launch: Launch, end: float, is_over: Callable[[], bool]) -> None:
        """end: by time.monotonic(). is_over: whether this rank has joined by another way."""
        self._launch, self._end, self._is_over = launch, end, is_over
        self._began = self._since = time.monotonic()
        self._doing = IMPORT
        self._lock = threading.Lock()

    def start(self) -> None:
        """Starts the thread that explains a search that takes too long."""
        thread = threading.Thread(target=self._watch, name="oddrank-no-root", daemon=True)
        thread.start()

    def goes_on(self, doing: str) -> None:
        """Begins the next step."""
        with self._lock:
            self._doing, self._since = doing, time.monotonic()

    def fails(self, error: Exception) -> str:
        """Ends the search: prints why it failed, and returns the error in short."""
        doing, text = self.ends(), _in_short(error)
        if doing and not self._is_over():
            self._say(self._why(doing, error), last=True)
        return text

    def ends(self) -> str:
        """Ends the search. Returns its last step; "" if it had ended: only one caller prints."""
        with self._lock:
            doing, self._doing = self._doing, ""
            return doing

    def _watch(self) -> None:
        said = False
        while not self._is_over() and self._doing and time.monotonic() < self._end:
            now = time.monotonic()
            is_due = now - self._since > _FIRST_SECONDS < self._end - now
            if is_due and not said and self._doing != IMPORT:
                said = True
                self._say(self._why(self._doing), last=False)
            time.sleep(0.25)
        if not self._is_over() and (doing := self.ends()):
            self._say(self._why(doing), last=True)

    def _why(self, doing: str, error: Exception | None = None) -> str:
        host, port = self._launch.master or ("", 0)
        # Errors of torch's store differ only in their texts.
        late = isinstance(error, RuntimeError) and re.search(
            "timed out|timeout", str(error).lower()
        )
        if error and not late:
            why = _in_short(error)
            if doing == OPEN and "EADDRINUSE" in str(error):
                why += f"; is the port taken? ss -ltnp | grep {port}  (on {self._launch.host})"
            return why
        if doing == IMPORT:
            return "it is still importing torch: time python -c 'import torch'  (on this host)"
        if doing == ASK:
            return "it answers, but rank 0 has left no address there: was rank 0 started?"
        return _look(host, port)

    def _say(self, why: str, *, last: bool) -> None:
        launch, now = self._launch, time.monotonic()
        if not _is_first():
            return
        host, port = launch.master or ("", 0)
        finds = "opens no store for the others" if launch.rank == 0 else "finds no rank 0"
        where = f"torch's store at MASTER_ADDR:MASTER_PORT {host}:{port}"
        tried = f"tried for {now - self._began:.0f} s"
        if not last:
            finds += " yet"
            tried += f", at most {max(1, math.ceil(self._end - now))} s more"
        line = f"oddrank: rank {launch.rank} ({launch.host}) {finds}: {where}, {tried}: {why}\n"
        with suppress(OSError):
            sys.stderr.write(line)
            sys.stderr.flush()


def _in_short(error: Exception) -> str:
    return str(error) if isinstance(error, OddrankError) else type_and_text(error)


def _is_first() -> bool:
    """Returns whether this rank is the first of the job on this host to print: one is enough."""
    if _held:
        return True
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        door.bind(f"\0oddrank-no-root-{os.geteuid()}-{job_name()}"[:90])
    except OSError:
        door.close()
        return False
    _held.append(door)
    return True


def _look(host: str, port: int) -> str:
    """Returns the faults of the address that can be found within _LOOK_SECONDS."""
    # The thread may still add an answer after this function has returned.
    seen = [
        f"no name server says which address {host} has:"
        f" getent hosts {host}; cat /etc/resolv.conf  (on this host)"
    ]
    looking = threading.Thread(target=_look_into, args=(host, port, seen), daemon=True)
    looking.start()
    looking.join(_LOOK_SECONDS)
    return seen[-1]


def _look_into(host: str, port: int, seen: list[str]) -> None:
    try:
        # The resolver puts an address that can't be reached behind the others.
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        seen.append(
            f"the name can't be resolved ({why}): is MASTER_ADDR typed right? getent hosts {host}"
        )
        return
    seen.append(f"{address} has not answered yet")
    failed = _knock(str(address), port, _CONNECT_SECONDS)
    if failed is None:
        why = f"answers at port {port}, but is no store of this job: does another job use it?"
    elif isinstance(failed, ConnectionRefusedError):
        why = (
            f"refuses connections to port {port}: nobody listens there. Was rank 0 started, and is"
            f" MASTER_PORT its port? ss -ltn | grep {port}  (on that host)"
        )
    else:
        silent = isinstance(failed, TimeoutError)
        why = "never answered" if silent else f"can't be reached ({failed.strerror})"
        why += f": is the host up, and no firewall between? ping {address}; nc -zv {address} {port}"
    seen.append(f"{address} {why}")


def _knock(host: str, port: int, seconds: float) -> OSError | None:
    """Returns why the host does not answer at the port; None if it does."""
    try:
        with socket.create_connection((host, port), seconds):
            return None
    except OSError as error:
        return error


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
        self._search = Search(launch, self._end, lambda: session.stage != JOIN)

    def start(self) -> None:
        # FATAL hides the 20 lines of C++ back trace that a failed call of the store logs as an
        # error. With GPUs it would hide NCCL's errors, too.
        level = "ERROR" if os.path.exists("/dev/nvidiactl") else "FATAL"
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
                elif self._by_store and not (self._launch.local_rank and self._launch.one_parent):
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
        self._search.goes_on(ASK)
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
        if (error := _knock(host, port, _TRY_SECONDS)) is None:
            return ""
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


def _open_store(launch: Launch, end: float, search: Search) -> Any:
    dist = _import_torch()
    search.goes_on(OPEN)
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

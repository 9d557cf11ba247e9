"""Says why a rank does not find rank 0, once per host.

Without rank 0 there is no judge and no report: these lines are all that a user gets. The checks
do not use torch's store: it says nothing before its timeout, and overruns that.
"""

import math
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from oddrank.errors import OddrankError, type_and_text
from oddrank.job import job_name
from oddrank.launch import Launch

# The steps of a rank on its way to rank 0.
IMPORT, OPEN, ASK = "import torch", "open the store", "ask it for rank 0"
# A step that takes longer is explained once, if as much time is left.
_FIRST_SECONDS = 10.0
_LOOK_EVERY = 0.25
# A resolver may never answer.
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS = 0.4
_MOST_ADDRESSES = 2
# Bound by the first rank of the host that prints, until its process ends.
_held: list[socket.socket] = []


class Search:
    """One rank's search for rank 0. Explains a step that takes too long or fails."""

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
            time.sleep(_LOOK_EVERY)
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
    """Returns what is wrong with the address: the surest answer known within _LOOK_SECONDS."""
    # (how sure, answer). The thread may still add some after this function has returned.
    seen = [
        (0, f"no name server says which address {host} has:"
            f" getent hosts {host}; cat /etc/resolv.conf  (on this host)")
    ]  # fmt: skip
    looking = threading.Thread(target=_look_into, args=(host, port, seen), daemon=True)
    looking.start()
    looking.join(_LOOK_SECONDS)
    return max(seen, key=lambda one: one[0])[1]


def _look_into(host: str, port: int, seen: list[tuple[int, str]]) -> None:
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        seen.append(
            (1, f"the name can't be resolved ({why}): is MASTER_ADDR typed right?"
                f" getent hosts {host}")
        )  # fmt: skip
        return
    for family, kind, protocol, _, place in places[:_MOST_ADDRESSES]:
        seen.append((2, f"{place[0]} has not answered yet"))
        seen.append(_knock(family, kind, protocol, place))


def _knock(family: int, kind: int, protocol: int, place: tuple[object, ...]) -> tuple[int, str]:
    address, port = place[:2]
    try:
        with socket.socket(family, kind, protocol) as door:
            door.settimeout(_CONNECT_SECONDS)
            door.connect(place)
    except ConnectionRefusedError:
        return 5, (
            f"{address} refuses connections to port {port}: nobody listens there. Was rank 0"
            f" started, and is MASTER_PORT its port? ss -ltn | grep {port}  (on that host)"
        )
    except OSError as error:
        silent = isinstance(error, TimeoutError)
        why = "never answered" if silent else f"can't be reached ({error.strerror})"
        return 4 if silent else 3, (
            f"{address} {why}: is the host up, and no firewall between?"
            f" ping {address}; nc -zv {address} {port}"
        )
    return 6, (
        f"{address} answers at port {port}, but is no store of this job: does another job use it?"
    )

"""Why a rank finds no rank 0: looked at once torch's store has given up, and said once a host.

Without rank 0 nobody judges and there is no report: this line is all that a user gets.
"""

import os
import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from oddrank.launch import job_folder

if TYPE_CHECKING:
    from oddrank.launch import Launch

# There is little time left then, and a resolver may take for ever.
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS = 0.4
_MOST_ADDRESSES = 2
# Held until this process ends, by whoever of this host speaks first.
_held: list[socket.socket] = []


def say(launch: "Launch", error: Exception, seconds: float, *, reached: bool) -> None:
    """seconds: how long it was tried in all. reached: the store; it knew no address of rank 0's."""
    if not _is_first(launch):
        return
    text = str(error).partition("\n")[0] or type(error).__name__
    host, port = launch.master or ("", 0)
    tried = f"torch's store at MASTER_ADDR:MASTER_PORT {host}:{port}, tried for {seconds:.0f} s"
    if launch.rank == 0:
        why = f"{text}; is the port taken? ss -ltnp | grep {port}  (on {launch.host})"
    elif reached:
        why = f"it answers, but rank 0 has left no address there ({text}): was rank 0 started?"
    elif isinstance(error, RuntimeError):  # as torch's network errors are
        why = _look(host, port, text)
    else:
        why = f"{type(error).__name__}: {text}"
    who = "opens no store for the others" if launch.rank == 0 else "finds no rank 0"
    line = f"oddrank: rank {launch.rank} ({launch.host}) {who}: {tried}: {why}\n"
    with suppress(OSError):
        sys.stderr.write(line)


def _is_first(launch: "Launch") -> bool:
    """Of this job's on this host: what the others would say is the same."""
    _held.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    try:
        _held[-1].bind(f"\0oddrank-no-root-{os.geteuid()}-{job_folder(launch).name}"[:90])
    except OSError:
        return False
    return True


def _look(host: str, port: int, text: str) -> str:
    """What is wrong with the address; text: what torch says, where nothing is."""
    found = [
        f"no name server says which address {host} has:"
        f" getent hosts {host}; cat /etc/resolv.conf  (on this host)"
    ]
    looking = threading.Thread(target=_look_into, args=(host, port, text, found), daemon=True)
    looking.start()
    looking.join(_LOOK_SECONDS)
    return found[-1]


def _look_into(host: str, port: int, text: str, found: list[str]) -> None:
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        found.append(
            f"the name can't be resolved ({why}): is MASTER_ADDR typed right? getent hosts {host}"
        )
        return
    for family, kind, protocol, _, place in places[:_MOST_ADDRESSES]:
        found.append(_knock(socket.socket(family, kind, protocol), place, text))


def _knock(door: socket.socket, place: tuple[object, ...], text: str) -> str:
    address, port = place[:2]
    with door:
        door.settimeout(_CONNECT_SECONDS)
        try:
            door.connect(place)
        except ConnectionRefusedError:
            return (
                f"{address} refuses connections to port {port}: nobody listens there. Was rank 0"
                f" started, and is MASTER_PORT its? ss -ltn | grep {port}  (on that host)"
            )
        except OSError as error:
            silent = isinstance(error, TimeoutError)
            why = "never answered" if silent else f"can't be reached ({error.strerror})"
            return (
                f"{address} {why}: is the host up, and no firewall between?"
                f" ping {address}; nc -zv {address} {port}"
            )
    return (
        f"{address} answers at port {port}, but is no store of this job ({text}): is MASTER_PORT"
        " another's?"
    )

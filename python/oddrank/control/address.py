"""The root's address: where it listens, and the file and the store in which guards find it."""

import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from oddrank import _native, job
from oddrank.errors import OddrankError
from oddrank.launch import current, starter

ADDRESS = "ODDRANK_CONTROL_ADDR"
# The wire format of torch's TCPStore, from c10d's TCPStoreBackend.hpp: the same for both of its
# servers and in all torches that oddrank supports. A client says VALIDATE and a number, then sends
# queries. A text is its length as 64 bits, then its bytes; keys begin with "/".
_VALIDATE, _SET, _GET, _CHECK, _WAIT = 0, 1, 3, 5, 6
_MAGIC = 0x3C85F7CE
_DONE = b"\0"  # the answer of CHECK and WAIT: the key is there
_CONNECT_SECONDS = 5.0
# Then it is asked anew: a store whose host was lost says nothing.
_ANSWER_SECONDS = 60.0
_FIRST_PAUSE, _MOST_PAUSE = 0.1, 1.0
_MOST_BYTES = 4096
_OLD_SECONDS = 24 * 3600
_BACKLOG = 16_384  # the kernel cuts it to net.core.somaxconn


def listen(given: str) -> tuple[int, str, str]:
    """Return (listening descriptor, address for the others, address for rank 0's own guard).

    given: the address that the user chose; "": any port, and a new secret.
    """
    core = _native.core()
    if given:
        hosts, port, token = core.control_parse_address(given)
        listener, _ = listen_on(port)
    else:
        listener, port = listen_on(0)
        hosts = core.control_interfaces(os.environ.get("MASTER_ADDR", ""))
        token = os.urandom(16).hex()
    own = ",".join(["127.0.0.1", *hosts])
    return listener, f"{','.join(hosts)}:{port}#{token}", f"{own}:{port}#{token}"


def listen_on(port: int) -> tuple[int, int]:
    """Listens on all interfaces, on IPv6 and IPv4 if the host has both. Port 0: any.

    Returns:
        The descriptor, which does not block, and the port.

    """
    place = ("", port)
    try:
        try:
            listener = socket.create_server(
                place, family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
        except (OSError, ValueError):  # no IPv6 here
            listener = socket.create_server(place, backlog=_BACKLOG)
    except OSError as error:
        raise OddrankError(f"listen on port {port}: {os.strerror(error.errno or 0)}") from None
    listener.setblocking(False)
    bound: int = listener.getsockname()[1]
    return listener.detach(), bound


def path_under(folder: Path, run: str) -> str:
    """Returns this run's file in the job's folder; "" if the launcher's start time is unknown.

    The name holds the launcher's pid and start time: no other run has the same name. Only for
    launchers that are one process per host and run.
    """
    launcher = starter()
    started = job.start_time(launcher)
    return str(folder / f"root-{launcher}-{started}-{run}") if started else ""


def leave_private(file: Path, text: str) -> bool:
    """Writes a file of the job, whole or not at all; not into a folder that is another user's."""
    for folder in (file.parent.parent, file.parent):  # the user's, the job's
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = folder.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
            return False
    temporary = f"{file}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="ascii") as stream:
        stream.write(text)
    os.replace(temporary, file)
    return True


def leave_address(path: str, address: str) -> None:
    """Writes the address, a secret of this user's, for this host's guards: whole or not at all."""
    if not path:
        return
    file = Path(path)
    with suppress(OSError):  # full, read-only or another's: the store brings the address too
        if not leave_private(file, address):
            return
        # Files of guards that were killed before they had read them; no guard waits for so long.
        for old in file.parent.parent.glob("*/root-*"):
            with suppress(OSError):  # gone meanwhile, not ours, or its folder has records, too
                if old.lstat().st_mtime + _OLD_SECONDS < time.time():
                    old.unlink()
                    old.parent.rmdir()


def python_command(code: str) -> tuple[str, ...]:
    """Returns a command of a child process that runs Python code of oddrank's.

    A user's module in the current folder must not hide one of Python's: the folder of `-c` is left
    out. Python's own -P is newer than 3.10.
    """
    return (sys.executable, "-c", f"import sys; sys.path[:] = filter(None, sys.path)\n{code}")


def fetcher(key: str, seconds: float, file: str = "") -> tuple[str, ...]:
    """Returns a command that prints rank 0's address once it is in torch's store, if ever.

    It leaves the address in the rendezvous file, too.
    """
    code = f"from oddrank.control import address as a; a.fetch({key!r}, {seconds}, {file!r})"
    return python_command(code)


def fetch(key: str, seconds: float, file: str) -> None:
    """Is that command."""
    master = current().master
    with suppress(TimeoutError):
        if master and (address := get_from_store(master, key, seconds)):
            leave_address(file, address)
            print(address, end="")


def put_in_store(master: tuple[str, int], key: str, value: str, seconds: float) -> None:
    """Sets a key of torch's TCPStore once there is one. No torch: its import takes seconds.

    Raises:
        TimeoutError: None has taken it within `seconds`.

    """
    name = _text(f"/{key}")
    put = struct.pack("<B", _SET) + name + _text(value)
    _ask(master, put + struct.pack("<BQ", _CHECK, 1) + name, lambda link: "", seconds)


def get_from_store(master: tuple[str, int], key: str, seconds: float) -> str:
    """Returns the key's value once a process has set it.

    Raises:
        TimeoutError: There was none within `seconds`.

    """
    name = _text(f"/{key}")

    def read(link: socket.socket) -> str:
        link.sendall(struct.pack("<B", _GET) + name)
        (size,) = struct.unpack("<Q", _bytes(link, 8))
        return _bytes(link, size).decode()

    return _ask(master, struct.pack("<BQ", _WAIT, 1) + name, read, seconds)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _ask(
    master: tuple[str, int], query: bytes, then: Callable[[socket.socket], str], seconds: float
) -> str:
    """Sends a query until it is answered; returns what `then` reads behind the answer."""
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while (left := end - time.monotonic()) > 0:
        with suppress(OSError, ValueError):  # not there yet, gone, or no store
            link = socket.create_connection(master, min(_CONNECT_SECONDS, left))
            with link:
                link.settimeout(min(_ANSWER_SECONDS, left))
                link.sendall(struct.pack("<BI", _VALIDATE, _MAGIC) + query)
                if link.recv(1) == _DONE:
                    return then(link)
        time.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)
    raise TimeoutError(f"no answer from torch's store at {master[0]}:{master[1]}")


def _bytes(link: socket.socket, count: int) -> bytes:
    """Returns so many bytes of the connection. If they come in pieces, the store is asked anew."""
    data = link.recv(count) if count <= _MOST_BYTES else b""
    if len(data) < count:
        raise ValueError("no value of a store")
    return data

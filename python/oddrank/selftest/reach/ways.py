"""Ways between nodes: the interfaces that a job may use, and where each node listens there."""

import base64
import fcntl
import os
import socket
import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from oddrank.machine.interfaces import is_allowed

RENDEZVOUS = "rendezvous"
NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
# Interfaces per variable: further rails are alike.
_MOST = 4
_SIOCGIFADDR = 0x8915
_ADDRESS, _RECORD = 16, 18

# (numeric address, port); None: the node has no such way.
Place = tuple[str, int] | None


class Way(TypedDict):
    """Where a node listens on one of its interfaces."""

    interface: str
    address: str
    port: int


class Listening(TypedDict):
    """A node's result of stage listen.

    failed: address -> why it can't be listened at. asked: the variables that name interfaces.
    ephemeral: the kernel's range of ports.
    """

    ways: dict[str, Way]
    failed: dict[str, str]
    asked: dict[str, str]
    interfaces: list[str]
    ephemeral: str | None


def addresses(inet6: Path = Path("/proc/net/if_inet6")) -> dict[str, str]:
    """Returns interface -> its first IPv4 address, else its first global IPv6 address."""
    found: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no IPv4 address
                asked = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                found[name] = socket.inet_ntoa(asked[20:24])
    with suppress(OSError):
        for line in inet6.read_text(encoding="ascii", errors="replace").splitlines():
            digits, _, _, scope, _, name = line.split()
            if int(scope, 16) == 0:  # a link-local one needs more than the address
                text = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
                found.setdefault(name, text)
    return found


def matching(variable: str, value: str, names: Sequence[str]) -> list[str]:
    """Returns the interfaces that a variable allows, as NCCL or gloo (whole names) read it."""
    if variable == NCCL:
        listed = names if len(value) > 1 else ()  # NCCL ignores a single character
        return [name for name in listed if is_allowed(name, value)][:_MOST]
    asked = {part.partition(":")[0].strip() for part in value.split(",")}
    return [name for name in names if name in asked][:_MOST]


def ways(
    towards: str, known: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns way -> interface. towards: the interface that leads to the root, "" if unknown."""
    found = {RENDEZVOUS: towards} if towards in known else {}
    for variable in (NCCL, GLOO):
        value = environ.get(variable, "")
        for number, name in enumerate(matching(variable, value, [*known]), 1):
            found[variable if number == 1 else f"{variable} {number}"] = name
    return found


def pack(places: Sequence[Sequence[Place]]) -> str:
    """Packs every node's places into a text short enough for a plan: 3 to 5 bytes each."""
    records = [_record(place) for way in places for place in way]
    columns = bytes(record[i] for i in range(_RECORD) for record in records)
    return base64.b85encode(zlib.compress(columns, 9)).decode()


def unpack(text: str, nodes: int) -> list[list[Place]]:
    """Returns what `pack` was given."""
    columns = zlib.decompress(base64.b85decode(text))
    count = len(columns) // _RECORD
    places = [_place(columns[number::count]) for number in range(count)]
    return [places[first : first + nodes] for first in range(0, count, nodes)]


def _record(place: Place) -> bytes:
    if place is None:
        return bytes(_RECORD)
    address, port = place
    text = address if ":" in address else f"::ffff:{address}"
    return socket.inet_pton(socket.AF_INET6, text) + port.to_bytes(2, "big")


def _place(record: bytes) -> Place:
    port = int.from_bytes(record[_ADDRESS:], "big")
    if not port:
        return None
    text = socket.inet_ntop(socket.AF_INET6, record[:_ADDRESS])
    return text.removeprefix("::ffff:"), port

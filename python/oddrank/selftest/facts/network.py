"""What joins a rank's host to others: network cards, RDMA ports, and the interface it will use."""

import os
import re
import socket
from collections import Counter
from pathlib import Path

from oddrank import _native
from oddrank.selftest.facts.fact import Fact, Here
from oddrank.selftest.nccl_interfaces import allowed

_NET = Path("/sys/class/net")
_INFINIBAND = Path("/sys/class/infiniband")


def _interface(here: Here) -> str | None:
    """Where gloo and torch's store go: as told, else the way to rank 0."""
    told = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if told or not here.master:
        return told or None
    return _native.core().control_interface_towards(here.master) or None


def mtu(here: Here, root: Path = _NET) -> int | None:
    name = _interface(here)
    if not name or "/" in name or name.startswith("."):
        return None
    return int((root / name / "mtu").read_text(encoding="ascii"))


def nccl_interfaces(here: Here) -> str | None:
    """Those that NCCL_SOCKET_IFNAME allows, "" where there is none; None where it is not set."""
    told = os.environ.get("NCCL_SOCKET_IFNAME")
    if not told:
        return None
    return ", ".join(allowed(told, [name for _, name in socket.if_nameindex()]))


def cards(here: Here, root: Path = _NET) -> str | None:
    """How many there are of which state and speed: their names may differ on equal hosts."""
    found: Counter[str] = Counter()
    for folder in sorted(root.iterdir()):
        if os.path.exists(folder / "device"):
            found[f"{_text(folder / 'operstate')} ({_speed(folder)})"] += 1
    return ", ".join(f"{count} {card}" for card, count in sorted(found.items())) or None


def _speed(folder: Path) -> str:
    text = _text(folder / "speed")  # in Mb/s
    return (
        f"{int(text) / 1000:g} Gb/s" if re.fullmatch(r"[0-9]{1,9}", text) else "speed not readable"
    )


def ports(here: Here, root: Path = _INFINIBAND) -> dict[str, str]:
    """The RDMA ports and their links: mlx5_0/1 -> ACTIVE, 400 Gb/sec (4X NDR), InfiniBand."""
    return {
        f"{port.parents[1].name}/{port.name}": ", ".join(
            filter(None, (_state(port), _text(port / "rate"), _text(port / "link_layer")))
        )
        for port in root.glob("*/ports/*")
    }


def _state(port: Path) -> str:
    return (port / "state").read_text(encoding="ascii", errors="replace").rpartition(":")[2].strip()


def _text(file: Path) -> str:
    """Empty where it can't be read: the speed of a card that is down is an error."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


FACTS = (
    Fact("network_cards", cards, "odd"),
    Fact("interface", _interface, "fine"),
    Fact("mtu", mtu, "odd"),
    Fact("nccl_interfaces", nccl_interfaces, "fine"),
    # One host with a port fewer hangs jobs silently (NVIDIA/nccl#2428).
    Fact("rdma_ports", ports, "breaks"),
)

"""The facts of a rank's network: network cards, RDMA ports, and the interface it will use."""

import os
import re
import socket
from collections import Counter
from pathlib import Path

from oddrank import _native
from oddrank.machine import small_file
from oddrank.machine.interfaces import is_allowed
from oddrank.selftest.facts.fact import Fact, Here

_NET = Path("/sys/class/net")
_INFINIBAND = Path("/sys/class/infiniband")


def _interface(here: Here) -> str | None:
    """Returns gloo's interface: the one asked for, else the one that leads to rank 0."""
    asked = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if asked or not here.master:
        return asked or None
    return _native.core().control_interface_towards(here.master) or None


def mtu(here: Here, root: Path = _NET) -> int | None:
    name = _interface(here)
    if not name or "/" in name or name.startswith("."):
        return None
    return int((root / name / "mtu").read_text(encoding="ascii"))


def nccl_interfaces(here: Here) -> str | None:
    """Returns interfaces that NCCL_SOCKET_IFNAME allows, "" for none; None if it is not set."""
    listed = os.environ.get("NCCL_SOCKET_IFNAME", "")
    if len(listed) < 2:  # NCCL ignores a single character
        return None
    return ", ".join(name for _, name in socket.if_nameindex() if is_allowed(name, listed))


def cards(here: Here, root: Path = _NET) -> str | None:
    """Counts network cards by state and speed: their names may differ on equal hosts."""
    found: Counter[str] = Counter()
    for folder in sorted(root.iterdir()):
        if os.path.exists(folder / "device"):
            found[f"{small_file(folder / 'operstate')} ({_speed(folder)})"] += 1
    return ", ".join(f"{count} {card}" for card, count in sorted(found.items())) or None


def _speed(folder: Path) -> str:
    text = small_file(folder / "speed")  # in Mb/s
    return (
        f"{int(text) / 1000:g} Gb/s" if re.fullmatch(r"[0-9]{1,9}", text) else "speed not readable"
    )


def ports(here: Here, root: Path = _INFINIBAND) -> dict[str, str]:
    """Returns RDMA port -> its link: mlx5_0/1 -> ACTIVE, 400 Gb/sec (4X NDR), InfiniBand."""
    return {
        f"{port.parents[1].name}/{port.name}": ", ".join(
            filter(None, (_state(port), small_file(port / "rate"), small_file(port / "link_layer")))
        )
        for port in root.glob("*/ports/*")
    }


def _state(port: Path) -> str:
    return (port / "state").read_text(encoding="ascii", errors="replace").rpartition(":")[2].strip()


FACTS = (
    Fact("network_cards", cards, "odd"),
    Fact("interface", _interface, "fine"),
    Fact("mtu", mtu, "odd"),
    Fact("nccl_interfaces", nccl_interfaces, "fine"),
    # One host with a port fewer hangs jobs silently (NVIDIA/nccl#2428).
    Fact("rdma_ports", ports, "breaks"),
)

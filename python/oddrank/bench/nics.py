"""The line rates of this host's network devices, as far as the kernel tells them."""

import os
import re
from pathlib import Path

NET = Path("/sys/class/net")
INFINIBAND = Path("/sys/class/infiniband")


def line_rate(interface: str, root: Path = NET) -> float | None:
    """Gb/s of a real network card that is up; None where it is not known.

    Virtual devices (bridges, veth, tun) have a speed too, which says nothing; virtio says -1.
    """
    if not re.fullmatch(r"[^/\s]{1,15}", interface) or interface in (".", ".."):
        return None
    folder = root / interface
    if not os.path.exists(folder / "device"):
        return None
    speed = _number(folder / "speed")  # in Mb/s
    return speed / 1000 if speed is not None and speed > 0 else None


def line_rates(only: str, root: Path = NET) -> dict[str, float]:
    """Gb/s of the network cards that are up and that `only`, as NCCL_SOCKET_IFNAME, leaves."""
    names = (folder.name for folder in sorted(root.glob("*")) if _is_left(folder.name, "", only))
    return {name: rate for name in names if (rate := line_rate(name, root)) is not None}


def infiniband_rates(only: str = "", root: Path = INFINIBAND) -> dict[str, float]:
    """DEVICE:PORT -> Gb/s of the active RDMA ports (InfiniBand, RoCE, EFA) that `only` leaves.

    only: as NCCL_IB_HCA; where it names a port, it means that one alone.
    """
    rates = {}
    for port in sorted(root.glob("*/ports/*")):
        state, rate = _text(port / "state"), _text(port / "rate")
        found = re.match(r"([0-9.]{1,8}) Gb/sec", rate)
        device = port.parent.parent.name
        if "ACTIVE" in state and found and _is_left(device, port.name, only):
            rates[f"{device}:{port.name}"] = float(found[1])
    return rates


def _is_left(device: str, port: str, only: str) -> bool:
    """By a list as NCCL has it (its user guide, "Environment Variables"): beginnings of names.

    A leading = makes them whole names, and a ^ before all of it excludes what the list names.
    Empty: all.
    """
    excluded = only.startswith("^")
    listed = only.removeprefix("^")
    exact = listed.startswith("=")
    entries = [entry for entry in listed.removeprefix("=").split(",") if entry]
    return not entries or excluded != any(_fits(device, port, one, exact) for one in entries)


def _fits(device: str, port: str, entry: str, exact: bool) -> bool:
    """entry: DEVICE[:PORT[:RAIL[:PLANE]]], of which an empty port means all of them."""
    name, *more = entry.split(":")
    same = device == name if exact else device.startswith(name)
    return same and (not more or more[0] in ("", port))


def _number(file: Path) -> float | None:
    text = _text(file)
    return float(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else None


def _text(file: Path) -> str:
    """Empty where it can't be read: the speed of a device that is down is an error."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""

"""The line rates of this host's network devices, and NCCL's rule for lists of them."""

import os
import re
from pathlib import Path

from oddrank.machine import small_file

NET = Path("/sys/class/net")
INFINIBAND = Path("/sys/class/infiniband")


def line_rate(interface: str, root: Path = NET) -> float | None:
    """Returns the Gb/s of a real network card that is up; None if unknown.

    Virtual devices (bridges, veth, tun) have a speed without a meaning; virtio's is -1.
    """
    if not re.fullmatch(r"[^/\s]{1,15}", interface) or interface in (".", ".."):
        return None
    folder = root / interface
    if not os.path.exists(folder / "device"):
        return None
    speed = _number(folder / "speed")  # in Mb/s
    return speed / 1000 if speed is not None and speed > 0 else None


def line_rates(only: str, root: Path = NET) -> dict[str, float]:
    """Returns the Gb/s of each card that is up and that `only`, an NCCL_SOCKET_IFNAME, allows."""
    names = (folder.name for folder in sorted(root.glob("*")) if is_allowed(folder.name, only))
    return {name: rate for name in names if (rate := line_rate(name, root)) is not None}


def infiniband_rates(only: str = "", root: Path = INFINIBAND) -> dict[str, float]:
    """Returns DEVICE:PORT -> Gb/s of the active RDMA ports (InfiniBand, RoCE, EFA).

    only: an NCCL_IB_HCA; it allows the ports.
    """
    rates = {}
    for port in sorted(root.glob("*/ports/[0-9]*")):
        state, rate = small_file(port / "state"), small_file(port / "rate")
        found = re.match(r"([0-9.]{1,8}) Gb/sec", rate)
        device = port.parent.parent.name
        if "ACTIVE" in state and found and is_allowed(device, only, int(port.name)):
            rates[f"{device}:{port.name}"] = float(found[1])
    return rates


def is_allowed(name: str, listed: str, port: int = -1) -> bool:
    """Returns whether NCCL may use an interface or RDMA port, by a list like NCCL_IB_HCA.

    listed: prefixes of names, separated by commas, each with an optional :PORT. A leading ^
    excludes the listed names; a = after that demands whole names. Blanks belong to the names. An
    empty list allows all; ^ alone allows none. Source: NCCL 2.30, src/misc/utils.cc
    (parseStringList, matchIfList) and their callers.
    """
    excluded = listed.startswith("^")
    listed = listed.removeprefix("^")
    exact = listed.startswith("=")
    entries = [entry for entry in listed.removeprefix("=").split(",") if entry.partition(":")[0]]
    named = not entries or any(_fits(name, port, entry, exact) for entry in entries)
    return named != excluded


def _fits(name: str, port: int, entry: str, exact: bool) -> bool:
    """Returns whether an entry NAME[:PORT[:RAIL[:PLANE]]] means this name and port."""
    wanted, number, *_ = [*entry.split(":"), ""]
    same = name == wanted if exact else name.startswith(wanted)
    return same and (port == -1 or not number or _leading_number(number) in (-1, port))


def _leading_number(text: str) -> int:
    """Parses like C's atoi: 0 for text that begins with no number."""
    found = re.match(r"\s*([-+]?[0-9]{1,9})", text, re.ASCII)
    return int(found[1]) if found else 0


def _number(file: Path) -> float | None:
    text = small_file(file)
    return float(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else None

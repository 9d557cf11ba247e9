"""The line rates of this host's network devices, as far as the kernel tells them."""

import os
import re
from pathlib import Path

_NET = Path("/sys/class/net")
_INFINIBAND = Path("/sys/class/infiniband")


def line_rate(interface: str, root: Path = _NET) -> float | None:
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


def infiniband_rates(root: Path = _INFINIBAND) -> tuple[float, ...]:
    """Gb/s of each active port of the RDMA devices: InfiniBand, RoCE, EFA."""
    rates = []
    for port in sorted(root.glob("*/ports/*")):
        state, rate = _text(port / "state"), _text(port / "rate")
        found = re.match(r"([0-9.]{1,8}) Gb/sec", rate)
        if "ACTIVE" in state and found:
            rates.append(float(found[1]))
    return tuple(rates)


def _number(file: Path) -> float | None:
    text = _text(file)
    return float(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else None


def _text(file: Path) -> str:
    """Empty where it can't be read: the speed of a device that is down is an error."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""

"""Reads the hardware's error counters from NVML and sysfs, and how much they have grown.

Their keys are "PLACE COUNTER": "mlx5_0/1 link_downed", "0000:1b:00.0 aer_fatal"; for the rank's own
GPU "GPU aer_fatal", "GPU pcie_replay", "NVLink 3 replay".
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from oddrank import _native

Scope = Literal["gpu", "nvlink", "port", "pci", "tcp"]
Read: TypeAlias = "dict[str, int]"

SYSFS = Path("/sys")
SNMP = Path("/proc/net/snmp")
# TCP may retransmit so many segments, and this share of all: every network loses a few.
FEW_REPEATED, SHARE_REPEATED = 20, 0.01


@dataclass(frozen=True)
class Counter:
    """A row of the table. InfiniBand's counters are named as in sysfs.

    a_minute: tolerated growth per minute on healthy hardware; None: never judged.
    own: the device itself is at fault; else the other end of a link may be.
    """

    name: str
    scope: Scope
    a_minute: float | None = 0.0
    unit: str = ""
    own: bool = False


# Tolerated growth: NVIDIA's limits in DCGM for NVLink and PCIe replays, the InfiniBand
# specification's bit error rate for symbol errors. Time of throttling is in ns: 1 % of it.
COUNTERS = (
    Counter("ecc_corrected", "gpu", None),
    Counter("ecc_uncorrected", "gpu", own=True),
    Counter("pcie_replay", "gpu", 8),
    Counter("pcie_fatal", "gpu", own=True),
    Counter("power_cap_ns", "gpu", None, "ns"),
    Counter("software_thermal_ns", "gpu", 6e8, "ns"),
    Counter("hardware_thermal_ns", "gpu", 6e8, "ns"),
    Counter("power_brake_ns", "gpu", 6e8, "ns"),
    Counter("replay", "nvlink"),
    Counter("recovery", "nvlink"),
    Counter("crc_flit", "nvlink", 6000),
    Counter("crc_data", "nvlink", 6000),
    Counter("ecc_data", "nvlink", None),
    Counter("malformed", "nvlink"),
    Counter("buffer_overrun", "nvlink"),
    Counter("receive_errors", "nvlink", None),
    Counter("integrity", "nvlink"),
    Counter("discarded", "nvlink", None),
    Counter("recovery_failed", "nvlink"),
    Counter("link_recovery", "nvlink"),
    Counter("effective_errors", "nvlink", None),
    Counter("aer_correctable", "pci", 60),
    Counter("aer_nonfatal", "pci"),
    Counter("aer_fatal", "pci", own=True),
    Counter("symbol_error", "port", 10),
    Counter("link_downed", "port"),
    Counter("link_error_recovery", "port"),
    Counter("local_link_integrity_errors", "port"),
    Counter("excessive_buffer_overrun_errors", "port"),
    Counter("port_rcv_errors", "port", 10),
    Counter("port_rcv_remote_physical_errors", "port", None),
    Counter("port_xmit_discards", "port", None),
    Counter("port_xmit_wait", "port", None),
    Counter("packet_seq_err", "port", None),
    Counter("out_of_sequence", "port", None),
    Counter("local_ack_timeout_err", "port", None),
    Counter("segments", "tcp", None),
    Counter("retransmits", "tcp", FEW_REPEATED),
)
BY_NAME = {counter.name: counter for counter in COUNTERS}

_TOTAL = re.compile(r"TOTAL_ERR_\w+ (\d{1,19})")
_NUMBER = re.compile(r"\d{1,19}")
# More devices than any node has: bounds what a container may show.
_MOST_DEVICES = 64


def of_gpu(uuid: str) -> Read:
    """Reads one GPU and its NVLinks. Raises OddrankError if NVML does not answer."""
    reply: Mapping[str, Any] = _native.core().gpu_counters(uuid)
    read = {f"GPU {name}": count for name, count in reply["gpu"].items()}
    for link, counts in reply["links"].items():
        read |= {f"NVLink {link} {name}": count for name, count in counts.items()}
    return read


def of_pci(device: str, sysfs: Path, place: str = "") -> Read:
    """Reads the PCIe error counters of 0000:1b:00.0; empty if the kernel has none."""
    folder = sysfs / "bus/pci/devices" / device.lower()
    read = {}
    for kind in ("correctable", "nonfatal", "fatal"):
        found = _TOTAL.search(_text(folder / f"aer_dev_{kind}"))
        if found:
            read[f"{place or device.lower()} aer_{kind}"] = int(found[1])
    return read


def of_ports(sysfs: Path) -> Read:
    """Reads all ports of this host's RDMA devices, and the PCIe counters of these devices."""
    read: Read = {}
    for device, number in _ports(sysfs):
        for counter in COUNTERS:
            if counter.scope != "port":
                continue
            for kind in ("counters", "hw_counters"):
                text = _text(device / "ports" / number / kind / counter.name)
                if _NUMBER.fullmatch(text):
                    read[f"{device.name}/{number} {counter.name}"] = int(text)
        slot = (device / "device").resolve().name
        if number == "1" and re.fullmatch(r"[0-9a-f:.]{7,20}", slot):
            read |= of_pci(slot, sysfs)
    return read


def of_tcp(file: Path = SNMP) -> Read:
    """Reads how many segments this host's TCP has sent, and how many of them again."""
    rows = [line.split() for line in _text(file).splitlines() if line.startswith("Tcp:")]
    if len(rows) < 2 or not all(value.lstrip("-").isdigit() for value in rows[1][1:]):
        return {}
    read = dict(zip(rows[0][1:], map(int, rows[1][1:]), strict=False))
    names = {"OutSegs": "TCP segments", "RetransSegs": "TCP retransmits"}
    return {name: read[key] for key, name in names.items() if key in read}


def _ports(sysfs: Path) -> Iterator[tuple[Path, str]]:
    try:
        devices = sorted((sysfs / "class/infiniband").iterdir())[:_MOST_DEVICES]
    except OSError:
        return
    for device in devices:
        try:
            numbers = sorted(port.name for port in (device / "ports").iterdir())
        except OSError:
            continue
        yield from ((device, number) for number in numbers[:4])


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> Read:
    """Returns counters that have grown, and by how much. Skips counters that were cleared."""
    return {
        key: count - before[key]
        for key, count in after.items()
        if key in before and count > before[key]
    }


def split(key: str) -> tuple[str, str]:
    """Splits a key into place and name of the counter."""
    place, _, name = key.rpartition(" ")
    return place, name


def _text(file: Path) -> str:
    """Reads a file; empty if it can't: missing, a device that is gone, no permission."""
    try:
        with file.open(encoding="ascii", errors="replace") as stream:
            return stream.read(1 << 14).strip()
    except OSError:
        return ""

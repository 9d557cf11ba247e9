"""Reads the error counters of links and devices before most other stages, and after them.

From NVML and sysfs. Their keys are "PLACE COUNTER": "mlx5_0/1 link_downed", "0000:1b:00.0
aer_fatal"; for the rank's own GPU "GPU aer_fatal", "GPU pcie_replay", "NVLink 3 replay".
"""

import re
import time
from collections import Counter as Count
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from oddrank import _native
from oddrank.control.stages import Context, RunState, Skip, Stage, node_of
from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, Level, Row, Who, duration, grouped, ranks_text
from oddrank.machine import nvml, placement, small_file
from oddrank.machine.device import GPU
from oddrank.selftest import Options
from oddrank.selftest.stages.device import tested

Scope = Literal["gpu", "nvlink", "port", "pci", "tcp"]
Read: TypeAlias = "dict[str, int]"

SYSFS = Path("/sys")
SNMP = Path("/proc/net/snmp")
# TCP may retransmit so many segments, and this share of all: every network loses a few.
_FEW_REPEATED, _SHARE_REPEATED = 20, 0.01

# Counter -> its tolerated growth per minute on healthy hardware; None: never judged, like counters
# of NVML and TCP without a row. InfiniBand's are named as in sysfs. The limits are NVIDIA's in DCGM
# for NVLink and PCIe replays, the InfiniBand specification's bit error rate for symbol errors, and
# 1 % of the time, in ns, for throttling.
TOLERATED: dict[Scope, dict[str, float | None]] = {
    "gpu": {
        "ecc_uncorrected": 0, "pcie_replay": 8, "pcie_fatal": 0, "software_thermal_ns": 6e8,
        "hardware_thermal_ns": 6e8, "power_brake_ns": 6e8,
    },
    "nvlink": {
        "replay": 0, "recovery": 0, "crc_flit": 6000, "crc_data": 6000, "malformed": 0,
        "buffer_overrun": 0, "integrity": 0, "recovery_failed": 0, "link_recovery": 0,
    },
    "pci": {"aer_correctable": 60, "aer_nonfatal": 0, "aer_fatal": 0},
    "port": {
        "symbol_error": 10, "link_downed": 0, "link_error_recovery": 0,
        "local_link_integrity_errors": 0, "excessive_buffer_overrun_errors": 0,
        "port_rcv_errors": 10, "port_rcv_remote_physical_errors": None, "port_xmit_discards": None,
        "port_xmit_wait": None, "packet_seq_err": None, "out_of_sequence": None,
        "local_ack_timeout_err": None,
    },
    "tcp": {"retransmits": _FEW_REPEATED},
}  # fmt: skip
SCOPE_OF = {name: scope for scope, names in TOLERATED.items() for name in names}
# The device itself is at fault; else the other end of a link may be.
_OWN = ("ecc_uncorrected", "pcie_fatal", "aer_fatal")

_TOTAL = re.compile(r"TOTAL_ERR_\w+ ([0-9]{1,19})")
_NUMBER = re.compile(r"[0-9]{1,19}")
_MOST_DEVICES = 64  # more devices than any node has: bounds what a container may show


def of_gpu(uuid: str) -> Read:
    """Reads one GPU and its NVLinks. Raises OddrankError if NVML does not answer."""
    reply: Mapping[str, Any] = nvml.gpu_counters(uuid)
    read = {f"GPU {name}": count for name, count in reply["gpu"].items()}
    for link, counts in reply["links"].items():
        read |= {f"NVLink {link} {name}": count for name, count in counts.items()}
    return read


def of_pci(device: str, sysfs: Path, place: str = "") -> Read:
    """Reads the PCIe error counters of 0000:1b:00.0; empty if the kernel has none."""
    folder = sysfs / "bus/pci/devices" / device.lower()
    read = {}
    for kind in ("correctable", "nonfatal", "fatal"):
        found = _TOTAL.search(small_file(folder / f"aer_dev_{kind}"))
        if found:
            read[f"{place or device.lower()} aer_{kind}"] = int(found[1])
    return read


def of_ports(sysfs: Path) -> Read:
    """Reads all ports of this host's RDMA devices, and the PCIe counters of these devices."""
    read: Read = {}
    for device, number in _ports(sysfs):
        for name, kind in product(TOLERATED["port"], ("counters", "hw_counters")):
            text = small_file(device / "ports" / number / kind / name)
            if _NUMBER.fullmatch(text):
                read[f"{device.name}/{number} {name}"] = int(text)
        slot = (device / "device").resolve().name
        if number == "1" and re.fullmatch(r"[0-9a-f:.]{7,20}", slot):
            read |= of_pci(slot, sysfs)
    return read


def of_tcp(file: Path = SNMP) -> Read:
    """Reads how many segments this host's TCP has sent, and how many of them again."""
    rows = [line.split() for line in small_file(file).splitlines() if line.startswith("Tcp:")]
    if len(rows) < 2 or not all(_NUMBER.fullmatch(v.removeprefix("-")) for v in rows[1][1:]):
        return {}
    read = dict(zip(rows[0][1:], map(int, rows[1][1:]), strict=False))
    names = {"OutSegs": "TCP segments", "RetransSegs": "TCP retransmits"}
    return {name: read[key] for key, name in names.items() if key in read}


def _ports(sysfs: Path) -> Iterator[tuple[Path, str]]:
    for device in sorted((sysfs / "class/infiniband").glob("*"))[:_MOST_DEVICES]:
        for port in sorted(device.glob("ports/*"))[:4]:
            yield device, port.name


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> Read:
    """Returns counters that have grown, and by how much. Skips counters that were cleared."""
    return {
        key: count - before[key]
        for key, count in after.items()
        if key in before and count > before[key]
    }


# Key of the first reading in a rank's scratch.
_KEPT = "counters"
_MOST_TEXT = 100


class Looked(TypedDict):
    """counters: how many were read. not_readable: why its GPU's were not; "" if they were."""

    counters: int
    not_readable: str


class Grown(TypedDict):
    """seconds: between the two readings. grown: by counter."""

    seconds: float
    grown: Read
    not_readable: str


def read(context: Context[str]) -> tuple[Read, str]:
    """Returns the counters, and why its GPU's are missing. One rank reads its node's counters."""
    found: Read = {}
    why = ""
    if context.parameters == GPU and _native.cuda_part().module:
        context.step("read the error counters of the GPU")
        try:
            gpu = placement.of_rank(context.launch)
            found |= of_gpu(gpu.uuid.partition("-")[2])
            found |= of_pci(gpu.pci, SYSFS, "GPU")
        except OddrankError as error:
            why = str(error)[:_MOST_TEXT]
    if context.launch.local_rank == 0:
        context.step("read the error counters of the network devices")
        found |= of_ports(SYSFS)
        if context.master:  # ranks on other hosts
            found |= of_tcp()
    return found, why


def _measure(context: Context[str]) -> Looked:
    found, why = read(context)
    context.scratch[_KEPT] = (time.monotonic(), found)
    return {"counters": len(found), "not_readable": why}


def _plan_again(run: RunState) -> str | Skip:
    if not any(result["counters"] for result in run.of("counters").values()):
        return Skip("no counter of a link or device is readable here")
    return tested(run)


def _measure_again(context: Context[str]) -> Grown:
    began, before = context.scratch[_KEPT]
    after, why = read(context)
    seconds = time.monotonic() - began
    return {"seconds": seconds, "grown": growth(before, after), "not_readable": why}


_FEW = 3  # fewer GPUs of a node that count the same error may be chance


def _too_much(key: str, grown: Mapping[str, int], seconds: float) -> bool:
    """Returns whether a counter grew by more than on healthy hardware in that time, or a minute."""
    name, by = key.rpartition(" ")[2], grown[key]
    scope = SCOPE_OF.get(name)
    a_minute = TOLERATED[scope][name] if scope else None
    if a_minute is None:
        return False
    if scope == "tcp":
        sent = grown.get("TCP segments", 0)
        return by > _FEW_REPEATED and by > _SHARE_REPEATED * sent
    return by > a_minute * max(1.0, seconds / 60)


def _judge_growth(run: RunState, results: Mapping[int, Grown]) -> list[Finding]:
    """Judges growth without peers, except that growth on most nodes is usual on such machines."""
    grown: dict[str, dict[int, dict[str, int]]] = {}
    for rank, result in results.items():
        for key, by in result["grown"].items():
            if _too_much(key, result["grown"], result["seconds"]):
                place, _, name = key.rpartition(" ")
                grown.setdefault(name, {}).setdefault(rank, {})[place] = by
    found = []
    nodes = {rank: node_of(run.states[rank]) for rank in results}
    for name, ranks in grown.items():
        all_nodes, here = {*nodes.values()}, {nodes[rank] for rank in ranks}
        if len(all_nodes) > 2 and 2 * len(here) > len(all_nodes):
            found.append(everywhere(name, ranks))
            continue
        shared = _most_gpus(run, name, ranks)
        found += [everywhere(name, group, _node_of(run, min(group))) for group in shared]
        covered = {rank for group in shared for rank in group}
        found += [
            grew(run, rank, name, places, results[rank]["seconds"])
            for rank, places in ranks.items()
            if rank not in covered
        ]
    return found


def _most_gpus(run: RunState, name: str, ranks: Mapping[int, Mapping[str, int]]) -> list[list[int]]:
    """Returns ranks by node, for nodes on which most GPUs, and at least _FEW, count it."""
    own = (rank for rank, places in ranks.items() if is_gpus(name, places))
    gpus = grouped((node_of(run.states[rank]), rank) for rank in own)
    sizes = Count(map(node_of, run.states.values())) if gpus else Count()
    return [
        group for node, group in gpus.items() if len(group) >= _FEW and 2 * len(group) > sizes[node]
    ]


_LOOK: dict[Scope, tuple[str, ...]] = {
    "gpu": ("nvidia-smi -q -d ECC,PERFORMANCE", "dmesg -T | grep -i -e xid -e aer"),
    "nvlink": ("nvidia-smi nvlink -e", "dmesg -T | grep -i xid"),
    "pci": ("lspci -vv | grep -i -e lnksta -e uesta", "dmesg -T | grep -i aer"),
    "tcp": (
        "ip -s link; ethtool -S INTERFACE | grep -i -e err -e drop",
        "ping -c 1000 -i 0.01 -s 1400 ANOTHER_NODE  (which of them loses packets)",
    ),
    "port": ("perfquery -x  (or: ethtool -S INTERFACE)", "ibstat", "dmesg -T | grep -i mlx"),
}
_MOST_PLACES = 8

# fmt: off
_GREW = "{who} is suspicious: {name} grew by {amount} within {seconds}{where}"
_ITS_OWN: tuple[Level, str] = ("medium", "the hardware counts its own errors")
_OR_ITS_PEER: tuple[Level, str] = (
    "medium", _ITS_OWN[1] + "; the other end of a link may be the cause")
OWN_ERRORS = Row("own-errors-counted", "suspicious", _GREW, _ITS_OWN, drains_node=True)
ERRORS = Row("errors-counted", "suspicious", _GREW, _OR_ITS_PEER)
RETRANSMITS = Row("tcp-retransmits", "suspicious", _GREW, _OR_ITS_PEER)
ON_A_NODE = Row(
    "errors-everywhere", "suspicious", "{who} is suspicious: {name} grew on {count} of its GPUs",
    ("medium", "most GPUs of the node count it: it points at no GPU"))
ON_ALL_NODES = Row(
    "errors-everywhere", "unknown",
    "{name} grew on most nodes (read by {readers}): it points at no node",
    ("low", "most nodes have it: it points at none"))
# fmt: on


def grew(
    run: RunState, rank: int, counter: str, places: Mapping[str, int], seconds: float
) -> Finding:
    shown = sorted(places.items(), key=lambda place: -place[1])[:_MOST_PLACES]
    where = ", ".join(place for place, _ in shown if place != "GPU")
    name, most = counter.replace("_", " "), shown[0][1]
    scope, unit = SCOPE_OF[counter], "ns" if counter.endswith("_ns") else None
    row = OWN_ERRORS if counter in _OWN else RETRANSMITS if scope == "tcp" else ERRORS
    return replace(row, next=_LOOK[scope]).found(
        run.who([rank]) if is_gpus(counter, places) else _node_of(run, rank),
        *(Evidence(f"{at} {name}: +{by}", counter, by, unit) for at, by in shown),
        name=name.removesuffix(" ns"), seconds=duration(seconds, 0),
        where=f" ({where})" if where else "", amount=duration(most / 1e9) if unit else most,
    )  # fmt: skip


def is_gpus(counter: str, places: Collection[str]) -> bool:
    """Returns whether the rank's own GPU counted it. Network devices belong to the node."""
    return SCOPE_OF[counter] == "nvlink" or set(places) == {"GPU"}


def _node_of(run: RunState, rank: int) -> Who:
    here = node_of(run.states[rank])
    ranks = tuple(sorted(r for r, state in run.states.items() if node_of(state) == here))
    return Who("node", ranks, run.states[rank].host)


def everywhere(counter: str, ranks: Collection[int], node: Who | None = None) -> Finding:
    name, readers = counter.replace("_", " "), ranks_text(ranks)
    seen = Evidence(f"{readers} saw it grow", counter)
    name = name.removesuffix(" ns") if node else name
    row = replace(ON_A_NODE if node else ON_ALL_NODES, next=_LOOK[SCOPE_OF[counter]])
    return row.found(node or Who("node"), seen, name=name, readers=readers, count=len(ranks))


def stage(options: Options) -> Stage[str, Looked, list[Finding]]:
    return Stage("counters", 60, _measure, plan=tested)  # also if a rank lacks _cuda


def recheck(options: Options) -> Stage[str, Grown, list[Finding]]:
    return Stage("counters_recheck", 60, _measure_again, _judge_growth, _plan_again, closes=True)

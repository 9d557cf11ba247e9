"""Finds ranks that share their GPU, and errors of GPUs and NVSwitches in the kernel's log."""

import re
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import TypeAlias, TypedDict

from oddrank.control.stages import RunState, node_of
from oddrank.finding import grouped
from oddrank.machine.xid import KERNEL_LOG, SXID, XID, harmless, pci_slot, records

_XID, _SXID = re.compile(XID.encode()), re.compile(SXID.encode())
_MOST = 1 << 17  # records
Counts: TypeAlias = dict[str, int]
SwitchCounts: TypeAlias = dict[str, Counts]


class Health(TypedDict, total=False):
    """A rank's result of stage health: NVML's reply, or `unknown` and `pci`.

    unknown: why NVML could not be asked. lost: NVML's text if the GPU no longer answers. pid: the
    rank's own. xid: Xid -> how often the kernel has logged it, or why its log can't be read. sxid:
    the same for fatal errors of the node's NVSwitches, by their PCI addresses.
    """

    unknown: str
    pci: str
    gpu: str
    lost: str
    readings: dict[str, int]
    unreadable: dict[str, str]
    processes: list[int] | None
    mps_clients: list[int] | None
    pid: int
    xid: Counts | str
    sxid: SwitchCounts | str


def results(run: RunState) -> Mapping[int, Health]:
    return run.of("health")


def others(run: RunState) -> dict[int, str]:
    """Returns rank -> what else uses its GPU, for ranks that share it: their speed says nothing.

    In a container the driver's process ids are not the rank's: if the rank's own id is not in the
    driver's list, one of the listed processes is taken for the rank.
    """
    states = run.states
    ours = grouped((node_of(state), state.pid) for state in states.values())
    found = {}
    for rank, reply in results(run).items():
        pids, strangers = reply.get("processes") or [], 0
        if reply.get("pid") in pids:
            here = ours[node_of(states[rank])] if rank in states else ()
            strangers = len(set(pids) - {*here, reply["pid"]})
        elif pids:
            strangers = len(pids) - 1
        if reply.get("mps_clients"):
            found[rank] = "MPS shares it"
        elif strangers > 0:
            found[rank] = f"{strangers} other process{'es' * (strangers > 1)}"
    return found


def xids(pci: str, path: str = KERNEL_LOG) -> Counts | str:
    """Counts each Xid logged for the GPU 0000:9b:00.0. Returns a text if the log can't be read.

    Leaves out lines that tell of no fault.
    """
    log = _read(path)
    if isinstance(log, str):
        return log
    slot = pci_slot(pci)
    return Counter(
        found[2].decode()
        for found in _XID.finditer(log)
        if pci_slot(found[1].decode()) == slot
        and not harmless(int(found[2]), found[3].decode(errors="replace"))
    )


def sxids(path: str = KERNEL_LOG) -> SwitchCounts | str:
    """Counts the fatal SXids of each NVSwitch of this host. Returns a text as `xids` does."""
    log = _read(path)
    if isinstance(log, str):
        return log
    codes = grouped(
        (found[1].decode().lower(), found[2].decode())
        for found in _SXID.finditer(log)
        if found[3] == b"Fatal"  # others happen to healthy switches
    )
    return {switch: Counter(of_switch) for switch, of_switch in codes.items()}


def _read(path: str) -> bytes | str:
    try:
        return b"".join(islice(records(path), _MOST))
    except OSError as error:
        return f"not readable: {error.strerror}"

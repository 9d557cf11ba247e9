"""Reads GPU health from NVML and the kernel's log: faults, and settings unlike its peers'."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from oddrank import _native
from oddrank.control.stages import Context, Node, RunState, Skip, Stage, node_of, nodes_of
from oddrank.errors import OddrankError
from oddrank.finding import Finding
from oddrank.machine import placement
from oddrank.machine.device import CPU
from oddrank.machine.xid import HARDWARE
from oddrank.peers import majority
from oddrank.selftest import Options, gpus
from oddrank.selftest.findings import health as findings
from oddrank.selftest.gpus import Health
from oddrank.selftest.stages import device

_LOAD_BYTES = 64 << 20
_SAMPLES = 3
# Bits of NVML's throttle reasons that a healthy GPU never has while it idles.
SLOWDOWNS = {0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}
# The bits that the hardware sets by itself: it divides its clock.
_BY_HARDWARE = 0x08 | 0x40 | 0x80
_MOST_TEXT = 100


def _plan(run: RunState) -> str | Skip:
    chosen = device.make_plan(run)
    return Skip("the ranks are tested on the CPU") if chosen == CPU else chosen


def _measure(context: Context[str]) -> Health:
    cuda, gpu = _native.cuda(), placement.of_rank(context.launch)
    cuda.set_rank(context.launch.rank)
    context.step("ask NVML, under a little load")
    try:
        reply = _under_load(cuda, gpu.index, gpu.uuid.partition("-")[2])
    except OddrankError as error:
        return {"unknown": str(error)[:_MOST_TEXT], "pci": gpu.pci}
    context.step("read the kernel's log")
    return {
        **reply,
        "gpu": (reply["gpu"] or gpu.name)[:_MOST_TEXT],
        "unreadable": {name: why[:_MOST_TEXT] for name, why in reply["unreadable"].items()},
        "pci": gpu.pci,
        "pid": os.getpid(),
        "xid": gpus.xids(gpu.pci),
        "sxid": gpus.sxids(),
    }


def _under_load(cuda: Any, index: int, uuid: str) -> Health:
    """Asks NVML a few times, each right after copies: an idle link falls to a lower generation.

    Returns the best generation, or none if no copy succeeded, and the throttle reasons seen each
    time: a slowdown may last a moment only. This process has a context then, and is among the
    GPU's processes.
    """
    reply: Health = {}
    best, throttle, loaded = 0, ~0, False
    for _ in range(_SAMPLES):
        with suppress(OddrankError):  # NVML may know why; the next stage reports it
            cuda.time_transfers(index, _LOAD_BYTES, 3, seconds=5.0)
            loaded = True
        reply = cast("Health", _native.core().gpu_health(uuid))
        readings = reply["readings"]
        best = max(best, readings.get("pcie", 0))
        throttle &= readings.get("throttle", 0)
    if "pcie" in reply["readings"]:
        reply["readings"]["pcie"] = best
    if not loaded:
        reply["readings"].pop("pcie", None)
    if "throttle" in reply["readings"]:
        reply["readings"]["throttle"] = throttle
    return reply


def _own_faults(run: RunState, rank: int, reply: Health) -> Iterable[Finding]:
    if reply.get("lost"):
        yield findings.lost(run, rank, reply)
        return
    readings = reply.get("readings", {})
    yield from findings.reported(run, rank, reply)
    throttle = readings.get("throttle", 0)
    reasons = [name for bit, name in SLOWDOWNS.items() if throttle & bit]
    if reasons:
        hardware = bool(throttle & _BY_HARDWARE)
        yield findings.slowed_down(run, rank, reply, reasons, hardware=hardware)
    logged = reply.get("xid")
    if isinstance(logged, dict):
        codes = {int(code): n for code, n in logged.items() if int(code) in HARDWARE}
        if codes:
            yield findings.logged(run, rank, codes)


def _number(readings: Mapping[str, int], name: str, unit: str, divisor: int = 1) -> str | None:
    value = readings.get(name)
    return None if value is None else f"{value // divisor}{unit}"


def _pcie(readings: Mapping[str, int]) -> str | None:
    """Returns both or None: a GPU that could not be asked under load is not different for that."""
    generation, width = readings.get("pcie"), readings.get("pcie_width")
    return f"gen{generation} x{width}" if generation and width else None


# Settings compared among GPUs of one kind -> text from the readings.
_COMPARED: dict[str, Callable[[Mapping[str, int]], str | None]] = {
    "PCIe": _pcie,
    "power cap": lambda readings: _number(readings, "power_cap_mW", " W", 1000),
    "highest SM clock": lambda readings: _number(readings, "max_clock_sm_MHz", " MHz"),
    "highest memory clock": lambda readings: _number(readings, "max_clock_memory_MHz", " MHz"),
    "ECC mode": lambda readings: {0: "off", 1: "on"}.get(readings.get("ecc", -1)),
    "MIG mode": lambda readings: {0: "off", 1: "on"}.get(readings.get("mig", -1)),
}


def _unlike_others(
    run: RunState, reply: Mapping[int, Health], kind: str, ranks: list[int]
) -> list[Finding]:
    """Finds settings unlike most GPUs' of one kind: a majority of GPUs and of nodes must agree."""
    found = []
    for name, text in _COMPARED.items():
        every = {rank: text(reply[rank]["readings"]) for rank in ranks}
        seen = {rank: value for rank, value in every.items() if value is not None}
        most = majority(seen) if seen else None
        if most is None or not most.deviants:
            continue
        if most.is_enough and _most_nodes(run, seen, most.value):
            found += [findings.unlike(run, kind, name, most, group) for group in most.groups[1:]]
        else:
            found.append(findings.no_majority(kind, name, most))
    return found


def _most_nodes(run: RunState, seen: Mapping[int, str], common: str) -> bool:
    """Returns whether on most nodes no value is more frequent than the common one."""
    nodes: dict[Node, Counter[str]] = {}
    for rank, value in seen.items():
        nodes.setdefault(node_of(run.states[rank]), Counter())[value] += 1
    agreeing = sum(votes[common] == max(votes.values()) for votes in nodes.values())
    return 2 * agreeing > len(nodes)


def _judge(run: RunState, reply: Mapping[int, Health]) -> list[Finding]:
    found = [one for rank in reply for one in _own_faults(run, rank, reply[rank])]
    kinds: dict[str, list[int]] = {}
    for rank, values in reply.items():
        if "readings" in values and not values.get("lost"):
            kinds.setdefault(values["gpu"], []).append(rank)
    for kind, ranks in kinds.items():
        found += _unlike_others(run, reply, kind, ranks)
    found += _of_switches(run, reply)
    found += _shared(run, reply)
    unread: dict[str, list[int]] = {}
    for rank, values in reply.items():
        if "unknown" in values:
            unread.setdefault(values["unknown"], []).append(rank)
    found += [findings.not_readable(ranks, why) for why, ranks in unread.items()]
    return found


def _of_switches(run: RunState, reply: Mapping[int, Health]) -> Iterable[Finding]:
    """Finds nodes whose NVSwitches had fatal errors: all ranks of a node read the same log."""
    for ranks in nodes_of(run):
        told = (reply[rank].get("sxid") for rank in ranks if rank in reply)
        logged = next((one for one in told if one and isinstance(one, dict)), None)
        if logged:
            yield findings.switches_logged(run, ranks, logged)


def _shared(run: RunState, reply: Mapping[int, Health]) -> list[Finding]:
    """Finds shared GPUs. If most are shared, the machine is set up so, and no rank is odd."""
    by = gpus.others(run)
    if len(by) > 1 and 2 * len(by) > len(reply):
        return [findings.shared_by_most(by)]
    return [findings.shared(run, rank, why) for rank, why in by.items()]


def stage(options: Options) -> Stage[str, Health, list[Finding]]:
    return Stage("health", 60, _measure, _judge, _plan)

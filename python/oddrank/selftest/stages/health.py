"""Reads GPU health from NVML and the kernel's log: faults, and settings unlike its peers'."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from oddrank import _native
from oddrank.control.stages import Context, RunState, Skip, Stage, nodes_of
from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, Level, Row, Who, counted, grouped, ranks_text
from oddrank.machine import nvml, placement
from oddrank.machine.device import CPU
from oddrank.machine.xid import HARDWARE
from oddrank.selftest import Options, gpus
from oddrank.selftest.facts import NOT_READABLE, Fact
from oddrank.selftest.gpus import Health, results
from oddrank.selftest.nodes import node_or_rank
from oddrank.selftest.stages import device
from oddrank.selftest.stages.environment import differences

_LOAD_BYTES = 64 << 20
_SAMPLES = 3
# Bits of NVML's throttle reasons that a healthy GPU never has while it idles.
SLOWDOWNS = {0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}
# The bits that the hardware sets by itself: it divides its clock.
_BY_HARDWARE = 0x08 | 0x40 | 0x80
_MOST_TEXT = 100

# NVML_GPU_RECOVERY_ACTION_*
_ACTIONS = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "its peer-to-peer traffic drained",
    4: "its peer-to-peer traffic drained and a reset",
    5: "a recovery of the IMEX domain",
}
_BY_NVML: tuple[Level, str] = ("high", "the GPU itself counts it")
_LOGGED: tuple[Level, str] = ("medium", "logged since boot: it may have been repaired since")
_MOST_VALUES = 8
_XIDS = "dmesg -T | grep -i xid"
_PROCESSES = "--query-compute-apps=pid,name,used_memory --format=csv"

# fmt: off
LOST = Row(
    "gpu-lost", "broken", "{who} {be} broken: its GPU does not answer: {words}", _BY_NVML,
    (_XIDS, "{smi} -q"), drains_node=True)
# Faults that the GPU itself reports if one of these readings is not 0. {action}: what the driver
# asks for; {errors}: the reading in words.
FAULTS = {
    ("remap_failed",): Row(
        "remap-failed", "broken", "{who} {be} broken: bad rows of its GPU's memory could not be"
        " replaced", _BY_NVML, ("{smi} -q -d ROW_REMAPPER",), drains_node=True),
    ("recovery_action",): Row(
        "recovery-needed", "broken", "{who} {be} broken: its GPU needs {action} after a fault",
        _BY_NVML, ("{smi} -q", _XIDS), drains_node=True),
    # Since its driver was loaded: perhaps long ago.
    ("ecc_uncorrected",): Row(
        "uncorrected-ecc", "suspicious", "{who} {be} suspicious: its GPU has had {errors} since its"
        " driver was loaded", _BY_NVML, ("{smi} -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT",),
        drains_node=True),
    # Until the reset the driver avoids them.
    ("remap_pending", "retirement_pending"): Row(
        "remap-pending", "suspicious", "{who} {be} suspicious: bad rows of its GPU's memory wait"
        " for a reset to be replaced", _BY_NVML,
        ("{smi} -q -d ROW_REMAPPER,PAGE_RETIREMENT", "{smi} -r  (with nothing running on it)")),
}
THROTTLED = Row(
    "throttled", "suspicious", "{who} {be} suspicious: its GPU slows itself down: {reasons}",
    ("medium", "seen in each of three readings"),
    ("{smi} -q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK",))
XID = Row(
    "xid", "suspicious", "{who} {be} suspicious: the kernel has logged faults of its GPU: {words}",
    _LOGGED, (_XIDS, "{smi} -q"))
SXID = Row(
    "sxid", "suspicious", "{who} is suspicious: the kernel has logged fatal errors of its"
    " NVSwitches: {words}", _LOGGED,
    ("dmesg -T | grep -i sxid", "systemctl status nvidia-fabricmanager  (on that host)"))
SHARED = Row(
    "gpu-shared", "suspicious", "{who} {be} suspicious: its GPU is shared ({by}): speed not judged",
    ("medium", "other processes on the GPU may be idle"), ("{smi} " + _PROCESSES,))
MOSTLY_SHARED = Row(
    "gpu-shared", "unknown", "the GPUs of {ranks} are shared ({by}): speed not judged",
    ("low", "most GPUs have it: it points at none"), (f"nvidia-smi {_PROCESSES}",))
# NVML can't be asked: that is no fault of a GPU, and no proof of health.
UNKNOWN_HEALTH = Row(
    "health-not-readable", "unknown", "the health of the GPUs of {ranks} is not readable: {why}",
    ("low", "nothing could be read"),
    ("nvidia-smi -q  (on those hosts; a container needs the capability utility)",))
# fmt: on


def of_gpu(row: Row, run: RunState, rank: int, seen: Evidence, **told: object) -> Finding:
    gpu = results(run)[rank].get("pci", "GPU")
    return row.found(run.who([rank]), seen, smi=f"nvidia-smi -i {gpu}", **told)


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
        reply = cast("Health", nvml.gpu_health(uuid))
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
    if lost := reply.get("lost"):  # it fell off the bus, or does nothing until it is reset
        yield of_gpu(LOST, run, rank, Evidence(f"NVML: {lost}", "NVML"), words=lost)
        return
    readings = reply.get("readings", {})
    for names, row in FAULTS.items():
        for name in [name for name in names if readings.get(name)][:1]:
            value = readings[name]
            seen = Evidence(f"{name.replace('_', ' ')}: {value}", f"NVML {name}", value)
            action = _ACTIONS.get(value, f"recovery action {value}")
            errors = counted(value, "uncorrected memory error")
            yield of_gpu(row, run, rank, seen, action=action, errors=errors)
    throttle = readings.get("throttle", 0)
    if reasons := [name for bit, name in SLOWDOWNS.items() if throttle & bit]:
        heat, clock = readings.get("temperature_C", "?"), readings.get("clock_sm_MHz", "?")
        text = f"throttle reasons {throttle:#x}, {heat} C, SM clock {clock} MHz"
        cause = "hardware-slowdown" if throttle & _BY_HARDWARE else THROTTLED.cause
        row, seen = replace(THROTTLED, cause=cause), Evidence(text, "NVML throttle", throttle)
        yield of_gpu(row, run, rank, seen, reasons=", ".join(reasons))
    logged = reply.get("xid")
    codes = {int(code): n for code, n in logged.items()} if isinstance(logged, dict) else {}
    if faults := [(code, n) for code, n in sorted(codes.items()) if code in HARDWARE]:
        words = ", ".join(f"Xid {code} ({HARDWARE[code]}) x{n}" for code, n in faults)
        yield of_gpu(XID, run, rank, Evidence(words, "kernel log"), words=words)


def _number(readings: Mapping[str, int], name: str, unit: str, divisor: int = 1) -> str:
    value = readings.get(name)
    return NOT_READABLE if value is None else f"{value // divisor}{unit}"


def _pcie(readings: Mapping[str, int]) -> str:
    """Returns both, or none: a GPU that was not asked under load is not different for that."""
    generation, width = readings.get("pcie"), readings.get("pcie_width")
    return f"gen{generation} x{width}" if generation and width else NOT_READABLE


_SWITCH = {0: "off", 1: "on"}
# Settings compared among GPUs of one kind -> text from the readings.
_COMPARED: dict[str, Callable[[Mapping[str, int]], str]] = {
    "PCIe": _pcie,
    "power cap": lambda readings: _number(readings, "power_cap_mW", " W", 1000),
    "highest SM clock": lambda readings: _number(readings, "max_clock_sm_MHz", " MHz"),
    "highest memory clock": lambda readings: _number(readings, "max_clock_memory_MHz", " MHz"),
    "ECC mode": lambda readings: _SWITCH.get(readings.get("ecc", -1), NOT_READABLE),
    "MIG mode": lambda readings: _SWITCH.get(readings.get("mig", -1), NOT_READABLE),
}
_FACTS = [Fact(name, str, "odd") for name in _COMPARED]


def _judge(run: RunState, reply: Mapping[int, Health]) -> list[Finding]:
    found = [one for rank in reply for one in _own_faults(run, rank, reply[rank])]
    kinds: dict[str, dict[int, dict[str, str]]] = {}
    for rank, values in reply.items():
        if "readings" in values and not values.get("lost"):
            own = {name: text(values["readings"]) for name, text in _COMPARED.items()}
            kinds.setdefault(values["gpu"], {})[rank] = own
    for settings in kinds.values():
        buses = {rank: reply[rank].get("pci", "GPU") for rank in settings}
        found += differences(run, _FACTS, settings, buses)
    found += _of_switches(run, reply)
    found += _shared(run, reply)
    unread = grouped((one["unknown"], rank) for rank, one in reply.items() if "unknown" in one)
    for why, ranks in unread.items():
        seen = Evidence(why, "NVML")
        found.append(UNKNOWN_HEALTH.found(Who("rank"), seen, ranks=ranks_text(ranks), why=why))
    return found


def _of_switches(run: RunState, reply: Mapping[int, Health]) -> Iterable[Finding]:
    """Finds nodes whose NVSwitches had fatal errors: all ranks of a node read the same log."""
    for ranks in nodes_of(run):
        told = (reply[rank].get("sxid") for rank in ranks if rank in reply)
        logged = next((one for one in told if one and isinstance(one, dict)), {})
        words = "; ".join(
            f"{switch}: " + ", ".join(f"SXid {code} x{n}" for code, n in counts.items())
            for switch, counts in logged.items()
        )
        if words:
            seen = Evidence(words, "kernel log")
            yield SXID.found(node_or_rank(run, ranks), seen, words=words)


def _shared(run: RunState, reply: Mapping[int, Health]) -> Iterable[Finding]:
    """Finds shared GPUs. If most are shared, the machine is set up so, and no rank is odd."""
    by = gpus.others(run)
    if len(by) < 2 or 2 * len(by) <= len(reply):
        for rank, why in by.items():
            seen = Evidence(f"on the GPU besides this rank: {why}", "NVML processes")
            yield of_gpu(SHARED, run, rank, seen, by=why)
        return
    ranks = grouped((why, rank) for rank, why in by.items())
    ways = sorted(ranks.items(), key=lambda way: -len(way[1]))[:_MOST_VALUES]
    every = (Evidence(f"{why}: {ranks_text(who)}", "NVML processes") for why, who in ways)
    told = {"ranks": ranks_text(by), "by": ", ".join(dict(ways))}
    yield MOSTLY_SHARED.found(Who("rank"), *every, **told)


def stage(options: Options) -> Stage[str, Health, list[Finding]]:
    return Stage("health", 60, _measure, _judge, _plan)

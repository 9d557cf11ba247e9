"""Reads GPU health from NVML and the kernel's log: faults, and settings unlike its peers'."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from oddrank import _native
from oddrank.control.stages import Context, Node, RunState, Skip, Stage, node_of, nodes_of
from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, Level, Row, Who, ranks_text
from oddrank.machine import placement
from oddrank.machine.device import CPU
from oddrank.machine.xid import HARDWARE
from oddrank.peers import Majority, majority
from oddrank.selftest import Options, gpus
from oddrank.selftest.gpus import Health, results
from oddrank.selftest.nodes import node_or_rank
from oddrank.selftest.stages import device

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
UNLIKE = Row(
    "other-gpu-setting", "suspicious",
    "{who} {be} suspicious: {name} {value}, {votes} others of {kind} have {common}",
    ("medium", "most GPUs of its kind agree"), ("{look}",))
NO_MAJORITY = Row(
    "no-gpu-majority", "unknown",
    "the {kind} differ in their {name}, and no value has a majority: {parts}",
    ("low", "too few GPUs, or nodes, agree"))
# NVML can't be asked: that is no fault of a GPU, and no proof of health.
NOT_READABLE = Row(
    "health-not-readable", "unknown", "the health of the GPUs of {ranks} is not readable: {why}",
    ("low", "nothing could be read"),
    ("nvidia-smi -q  (on those hosts; a container needs the capability utility)",))
# fmt: on


def of_gpu(row: Row, run: RunState, rank: int, seen: Evidence, **told: object) -> Finding:
    gpu = results(run)[rank].get("pci", "GPU")
    return row.found(run.who([rank]), seen, smi=f"nvidia-smi -i {gpu}", **told)


def lost(run: RunState, rank: int, reply: Health) -> Finding:
    """The GPU fell off the bus, or does nothing until it is reset."""
    words = reply["lost"]
    return of_gpu(LOST, run, rank, Evidence(f"NVML: {words}", "NVML"), words=words)


def reported(run: RunState, rank: int, reply: Health) -> list[Finding]:
    """The GPU itself reports faults."""
    readings, found = reply.get("readings", {}), []
    for names, row in FAULTS.items():
        name = next((name for name in names if readings.get(name)), None)
        if name is not None:
            value = readings[name]
            seen = Evidence(f"{name.replace('_', ' ')}: {value}", f"NVML {name}", value)
            action = _ACTIONS.get(value, f"recovery action {value}")
            errors = f"{value} uncorrected memory error{'s' * (value > 1)}"
            found.append(of_gpu(row, run, rank, seen, action=action, errors=errors))
    return found


def slowed_down(
    run: RunState, rank: int, reply: Health, reasons: Sequence[str], *, hardware: bool
) -> Finding:
    """The GPU slows down though it is nearly idle."""
    readings = reply["readings"]
    heat, clock = readings.get("temperature_C", "?"), readings.get("clock_sm_MHz", "?")
    text = f"throttle reasons {readings['throttle']:#x}, {heat} C, SM clock {clock} MHz"
    seen = Evidence(text, "NVML throttle", readings["throttle"])
    row = replace(THROTTLED, cause="hardware-slowdown") if hardware else THROTTLED
    return of_gpu(row, run, rank, seen, reasons=", ".join(reasons))


def xids_logged(run: RunState, rank: int, codes: Mapping[int, int]) -> Finding:
    """The kernel has logged hardware faults of the GPU, which may have been reset since."""
    words = ", ".join(f"Xid {code} ({HARDWARE[code]}) x{n}" for code, n in sorted(codes.items()))
    return of_gpu(XID, run, rank, Evidence(words, "kernel log"), words=words)


def switches_logged(
    run: RunState, ranks: tuple[int, ...], logged: Mapping[str, Mapping[str, int]]
) -> Finding:
    """The kernel has logged fatal errors of the node's NVSwitches, which may be reset since."""
    words = "; ".join(
        f"{switch}: " + ", ".join(f"SXid {code} x{n}" for code, n in counts.items())
        for switch, counts in logged.items()
    )
    return SXID.found(node_or_rank(run, ranks), Evidence(words, "kernel log"), words=words)


def shared(run: RunState, rank: int, by: str) -> Finding:
    """Other processes may compute on the GPU: its speed says nothing."""
    seen = Evidence(f"on the GPU besides this rank: {by}", "NVML processes")
    return of_gpu(SHARED, run, rank, seen, by=by)


def shared_by_most(by: Mapping[int, str]) -> Finding:
    """Most GPUs are shared: none is odd, and their speed is not judged."""
    ranks: dict[str, list[int]] = {}
    for rank, why in by.items():
        ranks.setdefault(why, []).append(rank)
    ways = sorted(ranks.items(), key=lambda way: -len(way[1]))[:_MOST_VALUES]
    seen = (Evidence(f"{why}: {ranks_text(who)}", "NVML processes") for why, who in ways)
    return MOSTLY_SHARED.found(Who("rank"), *seen, ranks=ranks_text(by), by=", ".join(dict(ways)))


def unlike(
    run: RunState,
    kind: str,
    name: str,
    most: Majority[int, str],
    odd: tuple[str, tuple[int, ...]],
) -> Finding:
    """GPUs differ from most of their kind. odd: their value and ranks."""
    (value, ranks), common, votes = odd, most.value, len(most.groups[0][1])
    look = "lspci -vv -s {} | grep -i lnk" if name == "PCIe" else "nvidia-smi -i {} -q"
    row = replace(UNLIKE, sure=("high", UNLIKE.sure[1])) if votes >= 3 * len(ranks) else UNLIKE
    return row.found(
        node_or_rank(run, ranks),
        Evidence(f"{name}: {value} instead of {common}", f"NVML {name}"),
        name=name, value=value, votes=votes, kind=kind, common=common,
        look=look.format(results(run)[ranks[0]].get("pci", "GPU")),
    )  # fmt: skip


def no_majority(kind: str, name: str, most: Majority[int, str]) -> Finding:
    """The GPUs of one kind differ, and no value has a majority."""
    parts = "; ".join(
        f"{ranks_text(ranks)}: {value}" for value, ranks in most.groups[:_MOST_VALUES]
    )
    seen = Evidence(parts, f"NVML {name}")
    return NO_MAJORITY.found(Who("rank"), seen, kind=kind, name=name, parts=parts)


def not_readable(ranks: list[int], why: str) -> Finding:
    return NOT_READABLE.found(Who("rank"), Evidence(why, "NVML"), ranks=ranks_text(ranks), why=why)


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
        yield lost(run, rank, reply)
        return
    readings = reply.get("readings", {})
    yield from reported(run, rank, reply)
    throttle = readings.get("throttle", 0)
    reasons = [name for bit, name in SLOWDOWNS.items() if throttle & bit]
    if reasons:
        hardware = bool(throttle & _BY_HARDWARE)
        yield slowed_down(run, rank, reply, reasons, hardware=hardware)
    logged = reply.get("xid")
    if isinstance(logged, dict):
        codes = {int(code): n for code, n in logged.items() if int(code) in HARDWARE}
        if codes:
            yield xids_logged(run, rank, codes)


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
            found += [unlike(run, kind, name, most, group) for group in most.groups[1:]]
        else:
            found.append(no_majority(kind, name, most))
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
    found += [not_readable(ranks, why) for why, ranks in unread.items()]
    return found


def _of_switches(run: RunState, reply: Mapping[int, Health]) -> Iterable[Finding]:
    """Finds nodes whose NVSwitches had fatal errors: all ranks of a node read the same log."""
    for ranks in nodes_of(run):
        told = (reply[rank].get("sxid") for rank in ranks if rank in reply)
        logged = next((one for one in told if one and isinstance(one, dict)), None)
        if logged:
            yield switches_logged(run, ranks, logged)


def _shared(run: RunState, reply: Mapping[int, Health]) -> list[Finding]:
    """Finds shared GPUs. If most are shared, the machine is set up so, and no rank is odd."""
    by = gpus.others(run)
    if len(by) > 1 and 2 * len(by) > len(reply):
        return [shared_by_most(by)]
    return [shared(run, rank, why) for rank, why in by.items()]


def stage(options: Options) -> Stage[str, Health, list[Finding]]:
    return Stage("health", 60, _measure, _judge, _plan)

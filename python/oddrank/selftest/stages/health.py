"""What NVML and the kernel's log tell of each GPU: own faults, and settings unlike its peers'."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from oddrank import _native
from oddrank.bench.place import GPU, gpu_index
from oddrank.control.nodes import Node, node_of
from oddrank.control.stages import Context, Rounds, Skip, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Finding
from oddrank.selftest import device, gpus, kernel_log
from oddrank.selftest.choice import Options
from oddrank.selftest.findings import health as findings

_LOAD_BYTES = 64 << 20
_SAMPLES = 3
# Bits of NVML's throttle reasons that a healthy GPU never shows while it idles: the hardware, its
# heat, the power brake from outside, software because of heat.
SLOWDOWNS = {0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}
# Of these, what the hardware does by itself: it divides its clock.
_BY_HARDWARE = 0x08 | 0x40 | 0x80
_MOST_TEXT = 100


def _plan(rounds: Rounds) -> str | Skip:
    chosen = device.plan(rounds)
    return chosen if chosen == GPU else Skip("the ranks are tested on the CPU")


def _measure(context: Context) -> dict[str, Any]:
    index = gpu_index(context.launch)
    cuda = _native.cuda()
    cuda.set_rank(context.launch.rank)
    gpu = cuda.devices()[index]
    context.step("ask NVML, under a little load")
    try:
        told = _under_load(cuda, index, gpu["uuid"].partition("-")[2])
    except OddrankError as error:
        return {"unknown": str(error)[:_MOST_TEXT], "pci": gpu["pci_bus_id"].lower()}
    context.step("read the kernel's log")
    return {
        **told,
        "gpu": (told["gpu"] or gpu["name"])[:_MOST_TEXT],
        "unreadable": {name: why[:_MOST_TEXT] for name, why in told["unreadable"].items()},
        "pci": gpu["pci_bus_id"].lower(),
        "pid": os.getpid(),
        "xid": kernel_log.xids(gpu["pci_bus_id"]),
    }


def _under_load(cuda: Any, index: int, uuid: str) -> dict[str, Any]:
    """The link's generation falls while a GPU idles, and a slowdown may last a moment only.

    So it is asked a few times right after copies: the best generation counts, or none where no copy
    went through, and what slows the GPU down each time. This process has a context then, and is
    among those on the GPU.
    """
    told: dict[str, Any] = {}
    best, throttle, loaded = 0, ~0, False
    for _ in range(_SAMPLES):
        with suppress(OddrankError):  # NVML may know why; and the next stage says it
            cuda.time_transfers(index, _LOAD_BYTES, 3, seconds=5.0)
            loaded = True
        told = _native.core().gpu_health(uuid)
        readings = told["readings"]
        best = max(best, readings.get("pcie", 0))
        throttle &= readings.get("throttle", 0)
    if "pcie" in told["readings"]:
        told["readings"]["pcie"] = best
    if not loaded:
        told["readings"].pop("pcie", None)
    if "throttle" in told["readings"]:
        told["readings"]["throttle"] = throttle
    return told


@dataclass(frozen=True)
class _Fault:
    """What a GPU tells against itself: readings, and the finding where one is not 0."""

    readings: tuple[str, ...]
    finding: Callable[[Rounds, int, Mapping[str, Any]], Finding]


_FAULTS = (
    _Fault(("remap_failed",), findings.rows_not_replaced),
    _Fault(("recovery_action",), findings.needs_recovery),
    _Fault(("ecc_uncorrected",), findings.uncorrected_errors),
    _Fault(("remap_pending", "retirement_pending"), findings.rows_pending),
)


def _own_faults(rounds: Rounds, rank: int, told: Mapping[str, Any]) -> Iterable[Finding]:
    if told.get("lost"):
        yield findings.lost(rounds, rank, told)
        return
    readings = told.get("readings", {})
    for fault in _FAULTS:
        if any(readings.get(name) for name in fault.readings):
            yield fault.finding(rounds, rank, told)
    throttle = readings.get("throttle", 0)
    reasons = [name for bit, name in SLOWDOWNS.items() if throttle & bit]
    if reasons:
        hardware = bool(throttle & _BY_HARDWARE)
        yield findings.slowed_down(rounds, rank, told, reasons, hardware=hardware)
    logged = told.get("xid")
    if isinstance(logged, dict):
        codes = {int(code): n for code, n in logged.items() if int(code) in kernel_log.HARDWARE}
        if codes:
            yield findings.logged(rounds, rank, told, codes)


def _number(name: str, unit: str = "", divisor: int = 1) -> Callable[[Mapping[str, int]], Any]:
    def text(readings: Mapping[str, int]) -> str | None:
        value = readings.get(name)
        return None if value is None else f"{value // divisor}{unit}"

    return text


def _pcie(readings: Mapping[str, int]) -> str | None:
    """Both or nothing: a GPU that could not be asked under load is no other for that."""
    generation, width = readings.get("pcie"), readings.get("pcie_width")
    return f"gen{generation} x{width}" if generation and width else None


# What is compared among the GPUs of one kind -> its text from the readings.
_COMPARED: dict[str, Callable[[Mapping[str, int]], Any]] = {
    "PCIe": _pcie,
    "power cap": _number("power_cap_mW", " W", 1000),
    "highest SM clock": _number("max_clock_sm_MHz", " MHz"),
    "highest memory clock": _number("max_clock_memory_MHz", " MHz"),
    "ECC mode": lambda readings: {0: "off", 1: "on"}.get(readings.get("ecc", -1)),
    "MIG mode": lambda readings: {0: "off", 1: "on"}.get(readings.get("mig", -1)),
}


def _unlike_others(rounds: Rounds, kind: str, ranks: list[int]) -> list[Finding]:
    """Of the GPUs of one kind: a vote each, and where whole nodes differ a vote each as well."""
    found = []
    told = rounds.of("health")
    for name, text in _COMPARED.items():
        seen = {rank: text(told[rank]["readings"]) for rank in ranks}
        groups: dict[str, list[int]] = {}
        for rank, value in seen.items():
            if value is not None:
                groups.setdefault(value, []).append(rank)
        if len(groups) < 2:
            continue
        common, usual = max(groups.items(), key=lambda group: len(group[1]))
        votes = sum(map(len, groups.values()))
        if 2 * len(usual) <= votes or not _most_nodes(rounds, groups, common):
            found.append(findings.no_majority(rounds, kind, name, groups))
            continue
        found += [
            findings.unlike(rounds, kind, name, groups, value=value, common=common)
            for value in groups
            if value != common
        ]
    return found


def _most_nodes(rounds: Rounds, groups: Mapping[str, list[int]], common: str) -> bool:
    """Whether on most nodes no value is more frequent than the common one: a node is one vote."""
    nodes: dict[Node, Counter[str]] = {}
    for value, ranks in groups.items():
        for rank in ranks:
            nodes.setdefault(node_of(rounds.states[rank]), Counter())[value] += 1
    agreeing = sum(votes[common] == max(votes.values()) for votes in nodes.values())
    return 2 * agreeing > len(nodes)


def _judge(rounds: Rounds) -> list[Finding]:
    told = rounds.of("health")
    found = [one for rank in told for one in _own_faults(rounds, rank, told[rank])]
    kinds: dict[str, list[int]] = {}
    for rank, values in told.items():
        if "readings" in values and not values.get("lost"):
            kinds.setdefault(values["gpu"], []).append(rank)
    for kind, ranks in kinds.items():
        found += _unlike_others(rounds, kind, ranks)
    found += _shared(rounds)
    unread: dict[str, list[int]] = {}
    for rank, values in told.items():
        if "unknown" in values:
            unread.setdefault(values["unknown"], []).append(rank)
    found += [findings.not_readable(rounds, ranks, why) for why, ranks in unread.items()]
    return found


def _shared(rounds: Rounds) -> list[Finding]:
    """What is on most ranks' GPUs is how this machine is set up, and no rank is odd by it."""
    told, by = rounds.of("health"), gpus.others(rounds)
    if len(by) > 1 and 2 * len(by) > len(told):
        return [findings.shared_by_most(by)]
    return [findings.shared(rounds, rank, why, told[rank]) for rank, why in by.items()]


def stage(options: Options) -> Stage:
    return Stage("health", 60, _measure, _judge, _plan)

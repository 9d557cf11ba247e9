"""Findings of the stage health."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oddrank.control.stages import RunState
from oddrank.finding import Condition, Confidence, Evidence, Finding, ranks_text
from oddrank.machine.xid import HARDWARE
from oddrank.peers import Majority
from oddrank.selftest.gpus import Health, results
from oddrank.selftest.nodes import node_or_rank

# NVML_GPU_RECOVERY_ACTION_*
_ACTIONS = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "its peer-to-peer traffic drained",
    4: "its peer-to-peer traffic drained and a reset",
    5: "a recovery of the IMEX domain",
}
_BY_NVML = Confidence("high", "the GPU itself counts it")
_LOGGED = Confidence("medium", "logged since boot: it may have been repaired since")
_MOST_VALUES = 8


_XIDS = "dmesg -T | grep -i xid"
_PROCESSES = "--query-compute-apps=pid,name,used_memory --format=csv"


def _smi(reply: Health, query: str) -> str:
    return f"nvidia-smi -i {reply.get('pci', 'GPU')} {query}"


def _of_gpu(
    run: RunState,
    rank: int,
    cause: str,
    says: str,
    evidence: Evidence,
    *,
    next: Sequence[str],
    condition: Condition = "suspicious",
    sure: Confidence = _BY_NVML,
    drains_node: bool = False,
) -> Finding:
    who = run.who([rank])
    return Finding(
        condition=condition,
        who=who,
        cause=cause,
        what=f"{who} {who.is_or_are} {condition}: {says}",
        evidence=(evidence,),
        confidence=sure,
        next=tuple(next),
        drains_node=drains_node,
    )


def lost(run: RunState, rank: int, reply: Health) -> Finding:
    """The GPU fell off the bus, or does nothing until it is reset."""
    words = reply["lost"]
    return _of_gpu(
        run,
        rank,
        "gpu-lost",
        f"its GPU does not answer: {words}",
        Evidence(f"NVML: {words}", "NVML"),
        next=(_XIDS, _smi(reply, "-q")),
        condition="broken",
        drains_node=True,
    )


@dataclass(frozen=True)
class Fault:
    """A fault that the GPU itself reports, if one of these readings is not 0.

    says: with {action} for what the driver asks for, and {errors} for the reading in words.
    queries: of nvidia-smi.
    """

    readings: tuple[str, ...]
    cause: str
    condition: Condition
    says: str
    queries: tuple[str, ...]
    drains_node: bool = True
    commands: tuple[str, ...] = ()


FAULTS = (
    Fault(("remap_failed",), "remap-failed", "broken",
          "bad rows of its GPU's memory could not be replaced", ("-q -d ROW_REMAPPER",)),
    Fault(("recovery_action",), "recovery-needed", "broken", "its GPU needs {action} after a fault",
          ("-q",), commands=(_XIDS,)),
    # Since its driver was loaded: perhaps long ago.
    Fault(("ecc_uncorrected",), "uncorrected-ecc", "suspicious",
          "its GPU has had {errors} since its driver was loaded",
          ("-q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT",)),
    # Until the reset the driver avoids them.
    Fault(("remap_pending", "retirement_pending"), "remap-pending", "suspicious",
          "bad rows of its GPU's memory wait for a reset to be replaced",
          ("-q -d ROW_REMAPPER,PAGE_RETIREMENT", "-r  (with nothing running on it)"),
          drains_node=False),
)  # fmt: skip


def reported(run: RunState, rank: int, reply: Health, fault: Fault) -> Finding | None:
    """The GPU itself reports a fault."""
    readings = reply.get("readings", {})
    name = next((name for name in fault.readings if readings.get(name)), None)
    if name is None:
        return None
    value = readings[name]
    action = _ACTIONS.get(value, f"recovery action {value}")
    errors = f"{value} uncorrected memory error{'s' * (value > 1)}"
    return _of_gpu(
        run,
        rank,
        fault.cause,
        fault.says.format(action=action, errors=errors),
        Evidence(f"{name.replace('_', ' ')}: {value}", f"NVML {name}", value),
        next=(*(_smi(reply, query) for query in fault.queries), *fault.commands),
        condition=fault.condition,
        drains_node=fault.drains_node,
    )


def slowed_down(
    run: RunState, rank: int, reply: Health, reasons: Sequence[str], *, hardware: bool
) -> Finding:
    """The GPU slows down though it is nearly idle."""
    readings = reply["readings"]
    heat, clock = readings.get("temperature_C", "?"), readings.get("clock_sm_MHz", "?")
    text = f"throttle reasons {readings['throttle']:#x}, {heat} C, SM clock {clock} MHz"
    return _of_gpu(
        run,
        rank,
        "hardware-slowdown" if hardware else "throttled",
        f"its GPU slows itself down: {', '.join(reasons)}",
        Evidence(text, "NVML throttle", readings["throttle"]),
        next=[_smi(reply, "-q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK")],
        sure=Confidence("medium", "seen in each of three readings"),
    )


def logged(run: RunState, rank: int, reply: Health, codes: Mapping[int, int]) -> Finding:
    """The kernel has logged hardware faults of the GPU, which may have been reset since."""
    words = ", ".join(f"Xid {code} ({HARDWARE[code]}) x{n}" for code, n in sorted(codes.items()))
    return _of_gpu(
        run,
        rank,
        "xid",
        f"the kernel has logged faults of its GPU: {words}",
        Evidence(words, "kernel log"),
        next=(_XIDS, _smi(reply, "-q")),
        sure=_LOGGED,
    )


def switches_logged(
    run: RunState, ranks: tuple[int, ...], logged: Mapping[str, Mapping[str, int]]
) -> Finding:
    """The kernel has logged fatal errors of the node's NVSwitches, which may be reset since."""
    who = node_or_rank(run, ranks)
    words = "; ".join(
        f"{switch}: " + ", ".join(f"SXid {code} x{n}" for code, n in counts.items())
        for switch, counts in logged.items()
    )
    return Finding(
        condition="suspicious",
        who=who,
        cause="sxid",
        what=f"{who} is suspicious: the kernel has logged fatal errors of its NVSwitches: {words}",
        evidence=(Evidence(words, "kernel log"),),
        confidence=_LOGGED,
        next=("dmesg -T | grep -i sxid", "systemctl status nvidia-fabricmanager  (on that host)"),
    )


def shared(run: RunState, rank: int, by: str, reply: Health) -> Finding:
    """Other processes may compute on the GPU: its speed says nothing."""
    return _of_gpu(
        run,
        rank,
        "gpu-shared",
        f"its GPU is shared ({by}): speed not judged",
        Evidence(f"on the GPU besides this rank: {by}", "NVML processes"),
        next=[_smi(reply, _PROCESSES)],
        sure=Confidence("medium", "other processes on the GPU may be idle"),
    )


def shared_by_most(by: Mapping[int, str]) -> Finding:
    """Most GPUs are shared: none is odd, and their speed is not judged."""
    ranks: dict[str, list[int]] = {}
    for rank, why in by.items():
        ranks.setdefault(why, []).append(rank)
    ways = sorted(ranks.items(), key=lambda way: -len(way[1]))[:_MOST_VALUES]
    return Finding(
        cause="gpu-shared",
        what=f"the GPUs of {ranks_text(by)} are shared ({', '.join(dict(ways))}): speed not judged",
        evidence=tuple(
            Evidence(f"{why}: {ranks_text(who)}", "NVML processes") for why, who in ways
        ),
        confidence=Confidence("low", "most GPUs have it: it points at none"),
        next=(f"nvidia-smi {_PROCESSES}",),
    )


def unlike(
    run: RunState,
    kind: str,
    name: str,
    most: Majority[int, str],
    odd: tuple[str, tuple[int, ...]],
) -> Finding:
    """GPUs differ from most of their kind. odd: their value and ranks."""
    (value, ranks), common, votes = odd, most.value, len(most.groups[0][1])
    who = node_or_rank(run, ranks)
    look = "lspci -vv -s {} | grep -i lnk" if name == "PCIe" else "nvidia-smi -i {} -q"
    return Finding(
        condition="suspicious",
        who=who,
        cause="other-gpu-setting",
        what=f"{who} {who.is_or_are} suspicious: {name} {value}, {votes} others of {kind}"
        f" have {common}",
        evidence=(Evidence(f"{name}: {value} instead of {common}", f"NVML {name}"),),
        confidence=Confidence(
            "high" if votes >= 3 * len(ranks) else "medium", "most GPUs of its kind agree"
        ),
        next=(look.format(results(run)[ranks[0]].get("pci", "GPU")),),
    )


def no_majority(kind: str, name: str, most: Majority[int, str]) -> Finding:
    """The GPUs of one kind differ, and no value has a majority."""
    parts = "; ".join(
        f"{ranks_text(ranks)}: {value}" for value, ranks in most.groups[:_MOST_VALUES]
    )
    return Finding(
        cause="no-gpu-majority",
        what=f"the {kind} differ in their {name}, and no value has a majority: {parts}",
        evidence=(Evidence(parts, f"NVML {name}"),),
        confidence=Confidence("low", "too few GPUs, or nodes, agree"),
    )


def not_readable(ranks: list[int], why: str) -> Finding:
    """NVML can't be asked: that is no fault of a GPU, and no proof of health."""
    return Finding(
        cause="health-not-readable",
        what=f"the health of the GPUs of {ranks_text(ranks)} is not readable: {why}",
        evidence=(Evidence(why, "NVML"),),
        confidence=Confidence("low", "nothing could be read"),
        next=("nvidia-smi -q  (on those hosts; a container needs the capability utility)",),
    )

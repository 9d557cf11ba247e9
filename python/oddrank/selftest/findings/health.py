"""The causes of the stage health: one function each."""

from collections.abc import Iterable, Mapping
from typing import Any

from oddrank.control.stages import Rounds
from oddrank.finding import Condition, Confidence, Evidence, Finding, Level, Who, fold
from oddrank.selftest.findings.names import node_or_rank
from oddrank.selftest.kernel_log import HARDWARE

# NVML_GPU_RECOVERY_ACTION_*
_ACTIONS = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "its peer-to-peer traffic drained",
    4: "its peer-to-peer traffic drained and a reset",
    5: "a recovery of the IMEX domain",
}
_BY_NVML = Confidence("high", "the GPU itself counts it")
_MOST_VALUES = 8


def _smi(told: Mapping[str, Any], query: str) -> str:
    return f"nvidia-smi -i {told.get('pci', 'GPU')} {query}"


def _of_gpu(
    rounds: Rounds,
    rank: int,
    says: str,
    *,
    cause: str,
    condition: Condition = "suspicious",
    evidence: Evidence,
    next: tuple[str, ...],
    confidence: Confidence = _BY_NVML,
) -> Finding:
    who = rounds.who([rank])
    return Finding(
        condition=condition,
        who=who,
        cause=cause,
        what=f"{who} is {condition}: {says}",
        stage="health",
        evidence=(evidence,),
        confidence=confidence,
        next=next,
    )


def _reading(told: Mapping[str, Any], name: str) -> Evidence:
    value = told["readings"].get(name, 0)
    return Evidence(f"{name.replace('_', ' ')}: {value}", f"NVML {name}", value)


def lost(rounds: Rounds, rank: int, told: Mapping[str, Any]) -> Finding:
    """It fell off the bus, or does nothing until it is reset."""
    words = told["lost"]
    return _of_gpu(
        rounds,
        rank,
        f"its GPU does not answer: {words}",
        cause="gpu-lost",
        condition="broken",
        evidence=Evidence(f"NVML: {words}", "NVML"),
        next=("dmesg -T | grep -i xid", _smi(told, "-q")),
    )


def rows_not_replaced(rounds: Rounds, rank: int, told: Mapping[str, Any]) -> Finding:
    """Bad memory that no spare row is left for."""
    return _of_gpu(
        rounds,
        rank,
        "bad rows of its GPU's memory could not be replaced",
        cause="remap-failed",
        condition="broken",
        evidence=_reading(told, "remap_failed"),
        next=(_smi(told, "-q -d ROW_REMAPPER"),),
    )


def needs_recovery(rounds: Rounds, rank: int, told: Mapping[str, Any]) -> Finding:
    """The driver asks for it."""
    action = told["readings"]["recovery_action"]
    needed = _ACTIONS.get(action, f"recovery action {action}")
    return _of_gpu(
        rounds,
        rank,
        f"its GPU needs {needed} after a fault",
        cause="recovery-needed",
        condition="broken",
        evidence=_reading(told, "recovery_action"),
        next=(_smi(told, "-q"), "dmesg -T | grep -i xid"),
    )


def uncorrected_errors(rounds: Rounds, rank: int, told: Mapping[str, Any]) -> Finding:
    """Since the driver was loaded, which need not be today."""
    count = told["readings"]["ecc_uncorrected"]
    errors = f"{count} uncorrected memory error{'s' * (count > 1)}"
    return _of_gpu(
        rounds,
        rank,
        f"its GPU has had {errors} since its driver was loaded",
        cause="uncorrected-ecc",
        evidence=_reading(told, "ecc_uncorrected"),
        next=(_smi(told, "-q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"),),
    )


def rows_pending(rounds: Rounds, rank: int, told: Mapping[str, Any]) -> Finding:
    """Replaced at the next reset; until then the driver avoids them."""
    rows = told["readings"].get("remap_pending")
    return _of_gpu(
        rounds,
        rank,
        "bad memory of its GPU is only replaced when it is reset",
        cause="remap-pending",
        evidence=_reading(told, "remap_pending" if rows else "retirement_pending"),
        next=(
            _smi(told, "-q -d ROW_REMAPPER,PAGE_RETIREMENT"),
            _smi(told, "-r  (with nothing running on it)"),
        ),
    )


def slowed_down(
    rounds: Rounds, rank: int, told: Mapping[str, Any], reasons: Iterable[str], *, hardware: bool
) -> Finding:
    """Though it has next to nothing to do."""
    readings = told["readings"]
    heat, clock = readings.get("temperature_C", "?"), readings.get("clock_sm_MHz", "?")
    text = f"throttle reasons {readings['throttle']:#x}, {heat} C, SM clock {clock} MHz"
    return _of_gpu(
        rounds,
        rank,
        f"its GPU slows itself down: {', '.join(reasons)}",
        cause="hardware-slowdown" if hardware else "throttled",
        evidence=Evidence(text, "NVML throttle", readings["throttle"]),
        next=(_smi(told, "-q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK"),),
        confidence=Confidence("medium", "seen in every one of a few looks"),
    )


def logged(rounds: Rounds, rank: int, told: Mapping[str, Any], codes: Mapping[int, int]) -> Finding:
    """Faults of hardware in the kernel's log: it may have been reset since."""
    words = ", ".join(f"Xid {code} ({HARDWARE[code]}) x{n}" for code, n in sorted(codes.items()))
    return _of_gpu(
        rounds,
        rank,
        f"the kernel has logged faults of its GPU: {words}",
        cause="xid",
        evidence=Evidence(words, "kernel log"),
        next=("dmesg -T | grep -i xid", _smi(told, "-q")),
        confidence=Confidence("medium", "logged since boot: it may have been repaired since"),
    )


def shared(rounds: Rounds, rank: int, by: str, told: Mapping[str, Any]) -> Finding:
    """Somebody else computes there, and its speed can't be told."""
    return _of_gpu(
        rounds,
        rank,
        f"its GPU is not its own ({by}), so that its speed is not judged",
        cause="gpu-shared",
        evidence=Evidence(f"on the GPU besides this rank: {by}", "NVML processes"),
        next=(_smi(told, "--query-compute-apps=pid,name,used_memory --format=csv"),),
        confidence=Confidence("medium", "who else is on the GPU may do nothing there"),
    )


def shared_by_most(by: Mapping[int, str]) -> Finding:
    """A profiler or MPS, as it is set up on all of them: nobody is odd, nor is a speed judged."""
    ranks: dict[str, list[int]] = {}
    for rank, why in by.items():
        ranks.setdefault(why, []).append(rank)
    ways = sorted(ranks.items(), key=lambda way: -len(way[1]))[:_MOST_VALUES]
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="gpu-shared",
        what=f"the GPUs of {Who('rank', tuple(by))} are not their own ({', '.join(dict(ways))}), so"
        " that their speed is not judged",
        stage="health",
        evidence=tuple(
            Evidence(f"{why}: {Who('rank', tuple(who))}", "NVML processes") for why, who in ways
        ),
        confidence=Confidence("low", "what most GPUs have sets none apart"),
        next=("nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",),
    )


def unlike(
    rounds: Rounds,
    kind: str,
    name: str,
    groups: Mapping[str, list[int]],
    *,
    value: str,
    common: str,
) -> Finding:
    """Those of `value` differ from most of their kind."""
    ranks, votes = groups[value], len(groups[common])
    who = node_or_rank(rounds, ranks)
    level: Level = "high" if votes >= 3 * len(ranks) else "medium"
    one = rounds.of("health")[ranks[0]]
    look = "lspci -vv -s {} | grep -i lnk" if name == "PCIe" else "nvidia-smi -i {} -q"
    verb = "are" if who.kind == "rank" and len(ranks) > 1 else "is"
    return Finding(
        condition="suspicious",
        who=who,
        cause="other-gpu-setting",
        what=f"{who} {verb} suspicious: {name} {value}, {votes} others of {kind} have {common}",
        stage="health",
        evidence=(Evidence(f"{name}: {value} instead of {common}", f"NVML {name}"),),
        confidence=Confidence(level, "most GPUs of its kind agree"),
        next=(look.format(one.get("pci", "GPU")),),
    )


def no_majority(rounds: Rounds, kind: str, name: str, groups: Mapping[str, list[int]]) -> Finding:
    """The GPUs of one kind differ, and nobody can say which is the odd one."""
    shown = sorted(groups.items(), key=lambda group: -len(group[1]))[:_MOST_VALUES]
    parts = "; ".join(f"rank {fold(ranks)}: {value}" for value, ranks in shown)
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="no-gpu-majority",
        what=f"the {kind} differ in their {name}, and no value has a majority: {parts}",
        stage="health",
        evidence=(Evidence(parts, f"NVML {name}"),),
        confidence=Confidence("low", "too few GPUs, or nodes, agree"),
    )


def not_readable(rounds: Rounds, ranks: list[int], why: str) -> Finding:
    """NVML is not there: that is no fault of a GPU, and no health either."""
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="health-not-readable",
        what=f"the health of the GPUs of rank {fold(ranks)} is not readable: {why}",
        stage="health",
        evidence=(Evidence(why, "NVML"),),
        confidence=Confidence("low", "nothing could be read"),
        next=("nvidia-smi -q  (on those hosts; a container needs the capability utility)",),
    )

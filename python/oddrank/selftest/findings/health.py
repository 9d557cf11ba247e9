"""Findings of the stage health: one function per cause."""

from collections.abc import Iterable, Mapping

from oddrank.control.stages import RunState
from oddrank.finding import Condition, Confidence, Evidence, Finding, Level, Who, ranks_text
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


def _smi(reply: Health, query: str) -> str:
    return f"nvidia-smi -i {reply.get('pci', 'GPU')} {query}"


def _of_gpu(
    run: RunState,
    rank: int,
    says: str,
    *,
    cause: str,
    condition: Condition = "suspicious",
    evidence: Evidence,
    next: tuple[str, ...],
    confidence: Confidence = _BY_NVML,
    drains_node: bool = False,
) -> Finding:
    who = run.who([rank])
    return Finding(
        condition=condition,
        who=who,
        cause=cause,
        what=f"{who} {who.is_or_are} {condition}: {says}",
        stage="health",
        evidence=(evidence,),
        confidence=confidence,
        next=next,
        drains_node=drains_node,
    )


def _reading(reply: Health, name: str) -> Evidence:
    value = reply["readings"].get(name, 0)
    return Evidence(f"{name.replace('_', ' ')}: {value}", f"NVML {name}", value)


def lost(run: RunState, rank: int, reply: Health) -> Finding:
    """The GPU fell off the bus, or does nothing until it is reset."""
    words = reply["lost"]
    return _of_gpu(
        run,
        rank,
        f"its GPU does not answer: {words}",
        cause="gpu-lost",
        drains_node=True,
        condition="broken",
        evidence=Evidence(f"NVML: {words}", "NVML"),
        next=("dmesg -T | grep -i xid", _smi(reply, "-q")),
    )


def rows_not_replaced(run: RunState, rank: int, reply: Health) -> Finding:
    """The GPU has bad rows of memory, and could not replace them by spare rows."""
    return _of_gpu(
        run,
        rank,
        "bad rows of its GPU's memory could not be replaced",
        cause="remap-failed",
        drains_node=True,
        condition="broken",
        evidence=_reading(reply, "remap_failed"),
        next=(_smi(reply, "-q -d ROW_REMAPPER"),),
    )


def needs_recovery(run: RunState, rank: int, reply: Health) -> Finding:
    """The driver asks for a recovery of the GPU."""
    action = reply["readings"]["recovery_action"]
    needed = _ACTIONS.get(action, f"recovery action {action}")
    return _of_gpu(
        run,
        rank,
        f"its GPU needs {needed} after a fault",
        cause="recovery-needed",
        drains_node=True,
        condition="broken",
        evidence=_reading(reply, "recovery_action"),
        next=(_smi(reply, "-q"), "dmesg -T | grep -i xid"),
    )


def uncorrected_errors(run: RunState, rank: int, reply: Health) -> Finding:
    """The GPU has had uncorrected errors since its driver was loaded, perhaps long ago."""
    count = reply["readings"]["ecc_uncorrected"]
    errors = f"{count} uncorrected memory error{'s' * (count > 1)}"
    return _of_gpu(
        run,
        rank,
        f"its GPU has had {errors} since its driver was loaded",
        cause="uncorrected-ecc",
        drains_node=True,
        evidence=_reading(reply, "ecc_uncorrected"),
        next=(_smi(reply, "-q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"),),
    )


def rows_pending(run: RunState, rank: int, reply: Health) -> Finding:
    """Bad rows are replaced at the next reset; until then the driver avoids them."""
    rows = reply["readings"].get("remap_pending")
    return _of_gpu(
        run,
        rank,
        "bad rows of its GPU's memory wait for a reset to be replaced",
        cause="remap-pending",
        evidence=_reading(reply, "remap_pending" if rows else "retirement_pending"),
        next=(
            _smi(reply, "-q -d ROW_REMAPPER,PAGE_RETIREMENT"),
            _smi(reply, "-r  (with nothing running on it)"),
        ),
    )


def slowed_down(
    run: RunState, rank: int, reply: Health, reasons: Iterable[str], *, hardware: bool
) -> Finding:
    """The GPU slows down though it is nearly idle."""
    readings = reply["readings"]
    heat, clock = readings.get("temperature_C", "?"), readings.get("clock_sm_MHz", "?")
    text = f"throttle reasons {readings['throttle']:#x}, {heat} C, SM clock {clock} MHz"
    return _of_gpu(
        run,
        rank,
        f"its GPU slows itself down: {', '.join(reasons)}",
        cause="hardware-slowdown" if hardware else "throttled",
        evidence=Evidence(text, "NVML throttle", readings["throttle"]),
        next=(_smi(reply, "-q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK"),),
        confidence=Confidence("medium", "seen in each of three readings"),
    )


def logged(run: RunState, rank: int, reply: Health, codes: Mapping[int, int]) -> Finding:
    """The kernel has logged hardware faults of the GPU, which may have been reset since."""
    words = ", ".join(f"Xid {code} ({HARDWARE[code]}) x{n}" for code, n in sorted(codes.items()))
    return _of_gpu(
        run,
        rank,
        f"the kernel has logged faults of its GPU: {words}",
        cause="xid",
        evidence=Evidence(words, "kernel log"),
        next=("dmesg -T | grep -i xid", _smi(reply, "-q")),
        confidence=_LOGGED,
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
        stage="health",
        evidence=(Evidence(words, "kernel log"),),
        confidence=_LOGGED,
        next=("dmesg -T | grep -i sxid", "systemctl status nvidia-fabricmanager  (on that host)"),
    )


def shared(run: RunState, rank: int, by: str, reply: Health) -> Finding:
    """Other processes may compute on the GPU: its speed says nothing."""
    return _of_gpu(
        run,
        rank,
        f"its GPU is shared ({by}): speed not judged",
        cause="gpu-shared",
        evidence=Evidence(f"on the GPU besides this rank: {by}", "NVML processes"),
        next=(_smi(reply, "--query-compute-apps=pid,name,used_memory --format=csv"),),
        confidence=Confidence("medium", "other processes on the GPU may be idle"),
    )


def shared_by_most(by: Mapping[int, str]) -> Finding:
    """Most GPUs are shared: none is odd, and their speed is not judged."""
    ranks: dict[str, list[int]] = {}
    for rank, why in by.items():
        ranks.setdefault(why, []).append(rank)
    ways = sorted(ranks.items(), key=lambda way: -len(way[1]))[:_MOST_VALUES]
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="gpu-shared",
        what=f"the GPUs of {Who('rank', tuple(by))} are shared ({', '.join(dict(ways))}):"
        " speed not judged",
        stage="health",
        evidence=tuple(
            Evidence(f"{why}: {Who('rank', tuple(who))}", "NVML processes") for why, who in ways
        ),
        confidence=Confidence("low", "most GPUs have it: it points at none"),
        next=("nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",),
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
    level: Level = "high" if votes >= 3 * len(ranks) else "medium"
    one = results(run)[ranks[0]]
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


def no_majority(kind: str, name: str, most: Majority[int, str]) -> Finding:
    """The GPUs of one kind differ, and no value has a majority."""
    parts = "; ".join(
        f"{ranks_text(ranks)}: {value}" for value, ranks in most.groups[:_MOST_VALUES]
    )
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="no-gpu-majority",
        what=f"the {kind} differ in their {name}, and no value has a majority: {parts}",
        stage="health",
        evidence=(Evidence(parts, f"NVML {name}"),),
        confidence=Confidence("low", "too few GPUs, or nodes, agree"),
    )


def not_readable(ranks: list[int], why: str) -> Finding:
    """NVML can't be asked: that is no fault of a GPU, and no proof of health."""
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="health-not-readable",
        what=f"the health of the GPUs of {ranks_text(ranks)} is not readable: {why}",
        stage="health",
        evidence=(Evidence(why, "NVML"),),
        confidence=Confidence("low", "nothing could be read"),
        next=("nvidia-smi -q  (on those hosts; a container needs the capability utility)",),
    )

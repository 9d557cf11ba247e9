"""The causes of the stage health."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from oddrank.control.stages import RunState
from oddrank.finding import Evidence, Finding, Level, Row, Who, ranks_text
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


def logged(run: RunState, rank: int, codes: Mapping[int, int]) -> Finding:
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

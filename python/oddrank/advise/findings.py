"""The causes of advise: for each its sentence, how sure it is, its source, and what to type."""

from dataclasses import dataclass

from oddrank.advise.checks import Hit
from oddrank.finding import Condition, Confidence, Evidence, Finding, Level, Who

_GUIDE = "NCCL 2.30 user guide, Environment Variables"
_TORCH = "docs.pytorch.org, ProcessGroupNCCL Environment Variables"


@dataclass(frozen=True)
class Cause:
    """The words of a cause. All but the level are formats of a hit's facts and its names.

    is_set: whether the variables are set, and not missing.
    """

    what: str
    why: str
    next: tuple[str, ...]
    source: str
    level: Level = "medium"
    condition: Condition = "suspicious"
    is_set: bool = True


CAUSES: dict[str, Cause] = {
    "misspelt": Cause(
        "{name} is no known variable: it may be {meant}, misspelt", "one or two letters differ",
        ("export {meant}=...; unset {name}",), "table of known variables",
    ),
    "impossible": Cause(
        "{name} takes {values}, and is set to something else{then}", "documented values",
        ("unset {name}",), "{source}", "high",
    ),
    "renamed": Cause(
        "{name} is an older name of {instead}", "torch 2.2 and newer read it and warn",
        ("export {instead}=${name}; unset {name}",), "torch 2.2, c10d/Utils.hpp",
    ),
    "removed": Cause(
        "{name} does nothing since {until}", "NCCL's guide says so", ("unset {name}",), _GUIDE,
    ),
    "two-names": Cause(
        "{name} and {other} are two names of one setting, and their values differ",
        "only one of them counts", ("unset {other}",), "table of known variables", "high",
        "mismatch",
    ),
    "launch-blocking": Cause(
        "{name} makes the CPU wait for each kernel", "it is for debugging; BLOOM-176B trained with"
        " it and lost no speed, so measure yours. NCCL before 2.17 may hang with it",
        ("unset {name}",), "LLM training handbook, Dealing with Async CUDA bugs",
    ),
    "left-over": Cause(
        "{name} keeps NCCL or torch from its fastest way ({does})",
        "it is for experiments, and often left over from one", ("unset {name}",), _GUIDE,
    ),
    "debug-log": Cause(
        "{name} makes {world} ranks write NCCL's whole log to stdout",
        "for production NCCL's guide recommends WARN",
        ("export NCCL_DEBUG=WARN", "export NCCL_DEBUG_FILE=/tmp/nccl.%h.%p  (if you need it)"),
        "NCCL 2.30 user guide, Logging",
    ),
    "shared-log": Cause(
        "{name} has no %p: {ranks} ranks of a host write one file, and lines are lost",
        "NCCL overwrites a file of that name", ("export {name}=/tmp/nccl.%h.%p",), _GUIDE, "high",
    ),
    "detail": Cause(
        "{name}=DETAIL checks each collective on all ranks before it runs",
        "it is for debugging, and slow", ("unset {name}",), "docs.pytorch.org, torch.distributed",
    ),
    "blocking-wait": Cause(
        "{name} switches torch's handling of errors and timeouts by its watchdog off",
        "torch uses one of the two, and takes blocking wait", ("unset {name}",),
        "torch, ProcessGroupNCCL.cpp",
    ),
    "no-timeout": Cause(
        "{name}=0: a collective that hangs is never ended", "the watchdog then ends nothing",
        ("unset {name}",), _TORCH,
    ),
    "recorder-off": Cause(
        "{name}=0 switches the Flight Recorder off: a hang leaves no dump to triage",
        "0 means off", ("export {name}=2000",), _TORCH,
    ),
    "recorder-unset": Cause(
        "the Flight Recorder is off: {name} is not set, and torch {torch} records nothing by"
        " default", "the version is that of oddrank's own environment", ("export {name}=2000",),
        "torch 2.7, FlightRecorder.hpp", is_set=False,
    ),
    "no-dump": Cause(
        "{name} is off: a timeout writes no Flight Recorder dump",
        "torch dumps only with both switches on", ("unset {name}",),
        "torch 2.13, ProcessGroupNCCL.hpp",
    ),
    "threads": Cause(
        "{ranks} ranks of a host with {name}={threads} use more threads than its {processors}"
        " processors", "counted", ("export {name}={enough}",), "OpenMP specification", "high",
    ),
    "threads-unset": Cause(
        "{name} is not set: each of {ranks} ranks of a host starts {threads} threads, on"
        " {processors} processors", "torch starts a thread for each processor it may use; torchrun"
        " alone sets 1", ("export {name}={enough}",), "torch/distributed/run.py", is_set=False,
    ),
    "expandable-segments": Cause(
        "{name} has expandable_segments: torch then ignores {other}", "torch says so in its log",
        ("unset {other}",), "torch, ProcessGroupNCCL.cpp",
    ),
    "endless-timeout": Cause(
        "{name} makes InfiniBand wait for ever: a lost link becomes a hang",
        "0 and values over 31 mean no timeout", ("unset {name}",), _GUIDE, "high",
    ),
    "loopback": Cause(
        "{name} names the loopback interface: ranks of {nodes} nodes can't reach each other",
        "lo reaches its own host only", ("unset {name}",), _GUIDE, "high",
    ),
    "sockets": Cause(
        "{name} x {other} is {count}, over the limit of {most}", "NCCL's guide has the limit",
        ("export {name}=4 {other}=4",), _GUIDE, "high",
    ),
    "ll128": Cause(
        "{name} forces LL128: on platforms without it, data may be corrupted",
        "NCCL chooses it where it is safe", ("unset {name}",), _GUIDE,
    ),
    "prefix": Cause(
        "{name} has {device} without =, and so also takes {more}", "names are prefixes without =",
        ("export {name}==${name}",), _GUIDE,
    ),
}  # fmt: skip


def finding(hit: Hit) -> Finding:
    cause = CAUSES[hit.cause]
    facts = {**hit.facts, "name": hit.names[0], "other": hit.names[-1]}
    if "takes" in facts:
        facts["values"] = _values_text(str(facts["takes"]))
        facts["then"] = f": {facts['otherwise']}" if facts["otherwise"] else ""
    state = "set" if cause.is_set else "not set"
    return Finding(
        condition=cause.condition,
        who=Who("process", device="this environment"),
        cause=hit.cause,
        what=cause.what.format(**facts),
        evidence=(
            Evidence(f"{' and '.join(hit.names)}: {state}", "environment"),
            Evidence("documented", cause.source.format(**facts)),
        ),
        confidence=Confidence(cause.level, cause.why.format(**facts)),
        next=tuple(command.format(**facts) for command in cause.next),
    )


def _values_text(takes: str) -> str:
    """Returns the values that a variable takes in words. takes: as in the table of variables."""
    texts = [_range_text(one) for one in takes.removesuffix(",").split("/")]
    text = " or ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
    return f"{text}, or a list of them" if takes.endswith(",") else text


def _range_text(one: str) -> str:
    low, is_range, high = one.partition("..")
    if not is_range:
        return one
    return "a whole number" + (f" from {low}" if low else "") + (f" to {high}" if high else "")

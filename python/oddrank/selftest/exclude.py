"""The nodes that a job should leave out, for SLURM, PBS and whoever reads names: pure.

A list of names keeps jobs from good hardware: on it are only nodes that are named with some
confidence, for what is the fault of a node or its GPUs. Another version or setting is repaired.
"""

import re
from collections.abc import Collection, Iterable

from oddrank.control.stages import Rounds
from oddrank.finding import Finding, Report
from oddrank.finding import fold as fold_ranks

ADVICE = "give --exclude a file in a folder you can write, or -"

# Cause -> whether its node is to be left out.
CAUSES: dict[str, bool] = {
    # the node is gone or does not answer, or its kernel holds a process
    "node-lost": True,
    "link-cut": True,
    "uninterruptible": True,
    # its hardware
    "bad-memory": True,
    "own-errors-counted": True,
    "gpu-lost": True,
    "remap-failed": True,
    "recovery-needed": True,
    "uncorrected-ecc": True,
    "hardware-slowdown": False,
    "wrong-contribution": True,
    "wrong-arithmetic": True,
    "not-finite": True,
    "other-gradients": True,
    "slow-rank": True,
    "slow-node": True,
    "slow-sender": True,
    "slow-receiver": True,
    "delayed-rank": True,
    "delayed-node": True,
    # nobody, or only a part of the others, reaches it
    "unreachable-node": True,
    "node-reaches-nobody": True,
    "node-cut-off": True,
    # on most other nodes the same path is well
    "file-system-hangs": True,
    "file-system-broken": True,
    "file-system-full": True,
    # either end, or the way between them
    "closed-link": False,
    "one-way-link": False,
    "slow-link": False,
    "delayed-link": False,
    "errors-counted": False,
    "other-parameters": False,
    # a process ended or stopped, by itself or by somebody's hand: software, or the job's launcher
    "killed": False,
    "exited": False,
    "ended": False,
    "stopped": False,
    "raised": False,
    "no-progress": False,
    "guard-lost": False,
    "never-came": False,
    "claimed-twice": False,
    "other-world": False,
    "wrong-local-rank": False,
    # to be repaired, not avoided
    "slow-cores": False,  # of one rank, the others are well: rather a foreign process than hardware
    "cpu-quota": False,
    "other-gpu-setting": False,
    "errors-everywhere": False,
    "remap-pending": False,
    "throttled": False,
    "gpu-shared": False,
    "xid": False,  # since boot: it may have been repaired meanwhile
    "health-not-readable": False,
    "no-gpu-majority": False,
    "other-version": False,
    "other-setting": False,
    "same-gpu": False,
    "far-from-gpu": False,
    "shm-full": False,
    "few-open-files": False,
    "no-interface": False,
    "no-interface-anywhere": False,
    "wrong-clock": False,
    "slow-file-system": False,
    "path-missing": False,
    "no-such-path": False,
    "path-read-only": False,
    "path-not-writable": False,
    "slower-than-baseline": False,
    # seen by those who received it, or nobody is named
    "wrong-values": False,
    "no-majority": False,
    "no-address": False,
    "all-raised": False,
    "all-wait": False,
    "ended-early": False,
    "open-files": False,
    "resolver": False,
    "late-arrival": False,
    "below-expected": False,
    "nothing-published": False,
    "too-few-iterations": False,
    "not-finite-anywhere": False,
    "gradients-differ": False,
    "replicas-differ": False,
    "slow-once": False,
    "not-confirmed": False,
    "uneven-links": False,
    "uneven-places": False,
    "too-noisy": False,
    "clocks-disagree": False,
    "all-closed": False,
    "no-pattern": False,
    "bits-differ": False,
    "unsure": False,
    "not-measured-again": False,
}
# Of the nodes that stay, a comment each.
_MOST_TOLD = 32
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})([^0-9]*)", re.DOTALL)
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def text(report: Report, rounds: Rounds) -> str:
    """A name a line, as SLURM takes it from a file and mpirun from a hostfile; else comments.

    The comments: why, the same as an option of sbatch and as PBS's command, and of the other nodes
    that are named why they stay.
    """
    why: dict[str, str] = {}
    stay: dict[str, str] = {}
    for finding in report.findings:
        hosts, text = _hosts(finding, rounds), _one_line(finding.what)
        for host in hosts:
            if _is_to_go(finding, hosts):
                why.setdefault(host, text)
            else:
                stay.setdefault(host, f"{text} ({finding.cause})")
    names = sorted(why, key=_order)
    lines = [f"# oddrank selftest: {len(names) or 'no'} node{'s' * (len(names) != 1)} to leave out"]
    if names:
        short = list(dict.fromkeys(name.partition(".")[0] for name in names))
        lines += [
            *(f"# {name}: {why[name]}" for name in names),
            f"# SLURM: --exclude={fold(short)}",
            f"# PBS: pbsnodes -o {' '.join(names)}",
        ]
    others = sorted(stay.keys() - why.keys(), key=_order)
    lines += [f"# {name} stays: {stay[name]}" for name in others[:_MOST_TOLD]]
    if len(others) > _MOST_TOLD:
        lines.append(f"# {len(others) - _MOST_TOLD} more nodes that are named stay")
    return "\n".join([*lines, *names]) + "\n"


def _is_to_go(finding: Finding, hosts: Collection[str]) -> bool:
    """Not where a finding says that it is not sure, or its cause is another's fault; of a link
    either end may be the cause.
    """
    sure = finding.confidence.level != "low" and (finding.who.kind != "link" or len(hosts) == 1)
    return sure and CAUSES.get(finding.cause, False)


def _hosts(finding: Finding, rounds: Rounds) -> set[str]:
    hosts = {rounds.states[rank].host for rank in finding.who.ranks if rank in rounds.states}
    return {host for host in hosts if _HOST.fullmatch(host)}


def fold(names: Iterable[str]) -> str:
    """SLURM's short form, `node[3,7-9],login`: of names that are alike but for their last number.

    The names' order is kept between groups. Leading zeros count: `n[03,10]` is not `n[3,10]`.
    """
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for name in names:
        head, number, tail = _parts(name)
        groups.setdefault((head, tail, bool(number)), []).append(number)
    return ",".join(_folded(head, tail, numbers) for (head, tail, _), numbers in groups.items())


def _folded(head: str, tail: str, numbers: list[str]) -> str:
    if len(numbers) == 1:
        return f"{head}{numbers[0]}{tail}"
    padded = any(number.startswith("0") for number in numbers)
    widths = sorted({len(number) for number in numbers}) if padded else [0]
    ranges = (_ranges([n for n in numbers if width in (0, len(n))], width) for width in widths)
    return f"{head}[{','.join(ranges)}]{tail}"


def _ranges(numbers: Iterable[str], width: int) -> str:
    text = fold_ranks(int(number) for number in numbers)
    return re.sub("[0-9]+", lambda number: number[0].zfill(width), text)


def _parts(name: str) -> tuple[str, str, str]:
    """What is before the last number, it, and what is after it."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], found[2], found[3]) if found else (name, "", "")


def _order(name: str) -> tuple[str, int, str]:
    head, number, tail = _parts(name)
    return head, int(number or 0), tail


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]

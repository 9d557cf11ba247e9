"""Whether the file systems answer, and how fast: on every node, in processes of their own."""

import errno
import os
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding, Who
from oddrank.selftest.choice import Options
from oddrank.selftest.findings import file_system as findings
from oddrank.selftest.findings.names import by_lowest_rank
from oddrank.selftest.mounts import mount_of
from oddrank.selftest.one_a_node import OneANode

NAME = "file_system"
# An automounter or a server that fails over takes seconds; what takes longer hangs jobs too.
_QUICK_SECONDS, _SECONDS = 5.0, 15.0
_REPEATS = 3
# All nodes write into one folder: its server makes about so many files a second.
_NODES_A_SECOND, _LONGEST_WAIT = 500, 10.0
# Slow is what takes ten times as long as on the other nodes, and so long that a person notices:
# healthy servers take 1 to 50 ms, local disks less. The best of the repeats counts.
_TIMES_SLOWER, _SLOW_SECONDS = 10, 0.1
_STATES = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.EROFS: "read-only",
    errno.EACCES: "not writable",
    errno.EPERM: "not writable",
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EEXIST: "busy",  # eight others of this user are at it
    errno.ECANCELED: "busy",  # somebody ended our process
}
# Nothing against a file system; and of paths that nobody asked for also these, where they are so
# on all nodes.
_UNKNOWN = ("", "busy")
_HARMLESS = ("missing", "read-only", "not writable")
# Of these no node has the folder, as far as they answer.
_NOWHERE = {"missing", "hangs"}


def _measure(context: Context) -> dict[str, Any] | None:
    told = context.parameters
    ranks = OneANode.unpack(told["ranks"])
    rank = context.launch.rank
    if rank not in ranks:
        return None
    context.step("try the file systems")
    time.sleep(min(_LONGEST_WAIT, ranks.place(rank) / _NODES_A_SECOND))
    paths = _paths(told["paths"])
    host = re.sub(r"[^A-Za-z0-9.-]", "-", context.launch.host)[:64]
    name = f".oddrank-{host}-{os.geteuid()}"
    began = time.monotonic()
    results = _native.core().probe_folders([*paths.values()], name, told["seconds"], _REPEATS)
    waited = round(time.monotonic() - began, 3)
    mounts = ""
    with suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    return {
        role: {
            **result,
            "path": path[:300],
            "asked": role == path,
            "mount": mount_of(path, mounts),
            "error": _text_of(result["error"]),
            "state": _state(result),
            "left": _left(result["left"]),
            "waited": waited,
        }
        for (role, path), result in zip(paths.items(), results, strict=True)
    }


def _paths(asked: Sequence[str]) -> dict[str, str]:
    """Each path once, by what the nodes compare it under: what was asked for by itself."""
    paths = {path: path for path in asked}
    for role, path in _usual().items():
        if path not in paths.values():
            paths[role] = path
    return paths


def _usual() -> dict[str, str]:
    """What nearly every job uses. Nothing here asks a file system, which may be dead."""
    found = {}
    with suppress(OSError):  # it has been removed
        found["working directory"] = os.getcwd()
    home = os.environ.get("HOME", "")
    if home.startswith("/"):
        found["home"] = home
    temporary = os.environ.get("TMPDIR", "")
    found["temporary files"] = temporary if temporary.startswith("/") else "/tmp"
    return found


def _text_of(error: int) -> str:
    if error < 0:
        return "what was read is not what was written"
    return os.strerror(error) if error else ""


def _state(result: Mapping[str, Any]) -> str:
    if result["hangs"]:
        return "hangs"
    return _STATES.get(result["error"], "broken") if result["stopped_at"] else ""


def _left(pid: int) -> str:
    """Of a killed process that is not gone, where it sleeps in the kernel: else nothing."""
    state = _told(pid, "stat").rpartition(") ")[2][:1] if pid else ""
    if state != "D":  # there is none, or it only had no core until now
        return ""
    wchan = _told(pid, "wchan")[:80]
    return f"process {pid} in D state" + (f", in {wchan}" if wchan not in ("", "0") else "")


def _told(pid: int, file: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{file}").read_text(encoding="ascii", errors="replace")
    return ""


def _judge(rounds: Rounds) -> list[Finding]:
    read = {r: m for r, m in sorted(rounds.of(NAME).items()) if m is not None}
    roles = dict.fromkeys(role for paths in read.values() for role in paths)
    nodes = by_lowest_rank(rounds)
    found = []
    for role in roles:
        seen = {nodes[rank]: _through(paths[role]) for rank, paths in read.items() if role in paths}
        found += _judge_path(seen, asked=next(iter(seen.values()))["asked"])
    return found


def _through(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """It hangs only where no repeat came through in time: what answers is at most slow."""
    through = min(map(len, one["seconds"].values()))
    if one["state"] != "hangs" or not through:
        return one
    seconds = {step: repeats[:through] for step, repeats in one["seconds"].items()}
    return {**one, "state": "", "seconds": seconds}


def _judge_path(seen: Mapping[Who, Mapping[str, Any]], *, asked: bool) -> list[Finding]:
    """`seen`: by node."""
    bad: dict[str, list[Who]] = {}
    for node, one in seen.items():
        if one["state"] not in _UNKNOWN:
            bad.setdefault(one["state"], []).append(node)
    well = {node: one for node, one in seen.items() if one["state"] == ""}
    number = sum(map(len, bad.values()))
    found = []
    for state, nodes in bad.items():
        # Of two one may be odd: what it fails in, it fails in whatever the other does.
        if number < len(well) or (len(well) == len(nodes) == 1):
            usual = statistics.median(map(_best, well.values()))
            found += [findings.node(node, seen[node], len(well), usual) for node in nodes]
        elif asked and state == "missing" and {one["state"] for one in seen.values()} <= _NOWHERE:
            found.append(findings.nowhere(seen[nodes[0]], nodes, len(seen)))
        elif asked or len(nodes) < len(seen) or state not in _HARMLESS:
            found.append(findings.everywhere(seen[nodes[0]], nodes, len(seen)))
    return found + _slow(well)


def _slow(well: Mapping[Who, Mapping[str, Any]]) -> list[Finding]:
    """None where many are slow: then it is the file system, or whoever else uses it."""
    best = {node: _best(one) for node, one in well.items()}
    suspects = [node for node, seconds in best.items() if seconds > _SLOW_SECONDS]
    if 3 * len(suspects) > len(best):
        return []
    usual = statistics.median(s for n, s in best.items() if n not in suspects) if suspects else 0.0
    return [
        findings.slow(node, well[node], best[node], usual, len(best) - len(suspects))
        for node in suspects
        if best[node] > _TIMES_SLOWER * usual
    ]


def _best(one: Mapping[str, Any]) -> float:
    """Seconds of the fastest repeat, of all its steps."""
    return float(min(map(sum, zip(*one["seconds"].values(), strict=True))))


def stage(options: Options) -> Stage:
    seconds = _QUICK_SECONDS if options.level == "quick" else _SECONDS

    def plan(rounds: Rounds) -> dict[str, Any]:
        return {
            "ranks": OneANode.of(rounds).pack(),
            "paths": options.paths,
            "seconds": seconds,
        }

    return Stage(NAME, seconds + _LONGEST_WAIT + 5, _measure, _judge, plan)

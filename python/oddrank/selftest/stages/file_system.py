"""Tests whether the file systems answer, and how fast: on every node, in separate processes."""

import errno
import os
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias, TypedDict

from oddrank import _native
from oddrank.control.stages import Context, RunState, Stage
from oddrank.finding import Evidence, Finding, Level, Row, Who, counted, duration, grouped
from oddrank.machine import process_state, small_file
from oddrank.selftest import Options
from oddrank.selftest.nodes import by_lowest_rank, hosts, leads, pack_leaders

NAME = "file_system"
# An automounter or a failover takes seconds; longer waits hang jobs, too.
_SECONDS = 15.0
_REPEATS = 3
# All nodes write into one folder: its server makes about so many files a second. Nodes start one
# after the other.
_NODES_A_SECOND, _LONGEST_WAIT = 500, 10.0
# A node is slow if it takes ten times as long as the other nodes, and noticeably long: healthy
# servers take 1 to 50 ms, local disks less. The best of the repeats counts.
_TIMES_SLOWER, _SLOW_SECONDS = 10, 0.1
_STATES = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.EROFS: "read-only",
    errno.EACCES: "not writable",
    errno.EPERM: "not writable",
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EEXIST: "busy",  # eight other processes of this user are at it
    errno.ECANCELED: "busy",  # another program ended our process
}
# States that are no fault of a file system. Nor are the harmless ones, on paths that were not asked
# for, if all nodes have them.
_UNKNOWN = ("", "busy")
_HARMLESS = ("missing", "read-only", "not writable")
_NOWHERE = {"missing", "hangs"}  # with only these states no node that answers has the folder

_WHAT = "file system {path} %s on {where}: {detail}{others}"
_USE: tuple[Level, str] = ("high", "{why}")
# fmt: off
SAID = {
    "hangs": Row("file-system-hangs", "broken", _WHAT % "does not answer in time", _USE,
                 drains_node=True),
    "missing": Row("path-missing", "different", _WHAT % "is missing", _USE),
    "read-only": Row("path-read-only", "different", _WHAT % "is read-only", _USE),
    "not writable": Row("path-not-writable", "different", _WHAT % "can't be written", _USE),
    "full": Row("file-system-full", "broken", _WHAT % "is full", _USE, drains_node=True),
    "broken": Row("file-system-broken", "broken", _WHAT % "is broken", _USE, drains_node=True),
}
# A path of --path is missing on all nodes that answer: mistyped, or mounted nowhere.
NOWHERE = Row(
    "no-such-path", "unknown", "{path} {said} on {where}: is it typed right, and mounted?",
    ("medium", "missing everywhere: it points at no node"),
    ("findmnt -T {path}; namei -l {path}  (on {host}: what is mounted there, and which part of it"
     " is missing)",))
SLOW = Row(
    "slow-file-system", "suspicious", "file system {path} is slow on {who}: a small file takes"
    " {seconds}, on most nodes {usual}",
    ("medium", "measured once; {well} nodes are at least 10 times faster"))
# fmt: on


class Plan(TypedDict):
    """ranks: by pack_leaders. paths: those asked for. seconds: for all steps of one path."""

    ranks: str
    paths: tuple[str, ...]
    seconds: float


class Tried(TypedDict):
    """A path as one node tried it.

    seconds: step -> its repeats. stopped_at: the step that failed or hangs; "" if none did. left:
    where a killed process still sleeps. waited: seconds until all paths had answered or were given
    up.
    """

    seconds: dict[str, list[float]]
    stopped_at: str
    error: str
    left: str
    path: str
    asked: bool
    state: str
    waited: float


Result: TypeAlias = "dict[str, Tried] | None"  # by role; None: another rank measures for its node


def _measure(context: Context[Plan]) -> Result:
    params = context.parameters
    node = leads(context.launch.rank, params["ranks"])
    if node is None:
        return None
    context.step("try the file systems")
    time.sleep(min(_LONGEST_WAIT, node / _NODES_A_SECOND))
    paths = _paths(params["paths"])
    host = re.sub(r"[^A-Za-z0-9.-]", "-", context.launch.host)[:64]
    name = f".oddrank-{host}-{os.geteuid()}"
    began = time.monotonic()
    results = _native.core().probe_folders([*paths.values()], name, params["seconds"], _REPEATS)
    waited = round(time.monotonic() - began, 3)
    return {
        role: {
            "seconds": result["seconds"],
            "stopped_at": result["stopped_at"],
            "path": path[:300],
            "asked": role == path,
            "error": _text_of(result["error"]),
            "state": _state(result),
            "left": _left(result["left"]),
            "waited": waited,
        }
        for (role, path), result in zip(paths.items(), results, strict=True)
    }


def _paths(asked: Sequence[str]) -> dict[str, str]:
    """Returns role -> path, each path once. A path that was asked for is its own role."""
    paths = {path: path for path in asked}
    for role, path in _usual().items():
        if path not in paths.values():
            paths[role] = path
    return paths


def _usual() -> dict[str, str]:
    """Returns the folders that nearly every job uses. Asks no file system: it may not answer."""
    found = {}
    with suppress(OSError):  # it was removed
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
    """Returns where a killed process still sleeps in the kernel; "" if it does not."""
    if not pid or process_state(pid) != "D":  # it has ended, or only waited for a core
        return ""
    wchan = small_file(f"/proc/{pid}/wchan")[:80]
    return f"process {pid} in D state" + (f", in {wchan}" if wchan not in ("", "0") else "")


def _judge(run: RunState, results: Mapping[int, Result]) -> list[Finding]:
    read = {r: m for r, m in sorted(results.items()) if m is not None}
    roles = dict.fromkeys(role for paths in read.values() for role in paths)
    nodes = by_lowest_rank(run)
    found = []
    for role in roles:
        seen = {nodes[rank]: _through(paths[role]) for rank, paths in read.items() if role in paths}
        found += _judge_path(seen, asked=next(iter(seen.values()))["asked"])
    return found


def _through(one: Tried) -> Tried:
    """Returns the result without "hangs" if a repeat succeeded in time: it is at most slow."""
    through = min(map(len, one["seconds"].values()))
    if one["state"] != "hangs" or not through:
        return one
    seconds = {step: repeats[:through] for step, repeats in one["seconds"].items()}
    return {**one, "state": "", "seconds": seconds}


def _judge_path(seen: Mapping[Who, Tried], *, asked: bool) -> list[Finding]:
    """Judges one path. seen: node -> its result. asked: whether the user named the path."""
    bad = grouped((m["state"], node) for node, m in seen.items() if m["state"] not in _UNKNOWN)
    well = {node: one for node, one in seen.items() if one["state"] == ""}
    number = sum(map(len, bad.values()))
    found = []
    for state, nodes in bad.items():
        # With two nodes, one that fails is odd: its failure does not depend on the other.
        if number < len(well) or (len(well) == len(nodes) == 1):
            usual = statistics.median(map(_best, well.values()))
            found += [odd_node(node, seen[node], len(well), usual) for node in nodes]
        elif asked and state == "missing" and {one["state"] for one in seen.values()} <= _NOWHERE:
            one = seen[nodes[0]]
            several = "any node" if len(nodes) == len(seen) else "any of the nodes that answer"
            no_folder = one["error"] == os.strerror(errno.ENOTDIR)
            found.append(NOWHERE.found(
                Who("file", (), None, one["path"]), Evidence(_detail(one), one["path"]),
                path=one["path"], host=nodes[0].host,
                said="is not a folder" if no_folder else "does not exist",
                where=several if len(seen) > 1 else nodes[0],
            ))  # fmt: skip
        elif asked or len(nodes) < len(seen) or state not in _HARMLESS:
            found.append(everywhere(seen[nodes[0]], nodes, len(seen)))
    return found + _slow(well)


def _slow(well: Mapping[Who, Tried]) -> list[Finding]:
    """Names slow nodes; none if many are slow: then the file system itself is busy or slow."""
    best = {node: _best(one) for node, one in well.items()}
    suspects = [node for node, seconds in best.items() if seconds > _SLOW_SECONDS]
    if 3 * len(suspects) > len(best):
        return []
    usual = statistics.median(s for n, s in best.items() if n not in suspects) if suspects else 0.0
    found = []
    for node in suspects:
        seconds, seen = best[node], well[node]
        if seconds > _TIMES_SLOWER * usual:
            steps = {step: min(repeats) for step, repeats in seen["seconds"].items() if repeats}
            worst = max(steps, key=lambda step: steps[step])
            text = f"the best of {len(seen['seconds'][worst])}, of which {worst} takes"
            text += f" {duration(steps[worst])}"
            how = "create, write, fsync, read, unlink"
            shown = Evidence(text, how, round(seconds, 6), "s", round(usual, 6))
            told = {"seconds": duration(seconds), "usual": duration(usual), "path": seen["path"]}
            row = replace(SLOW, next=_next(seen, node.host))
            well_ = len(best) - len(suspects)
            found.append(row.found(node, shown, *_evidence(seen)[1:], **told, well=well_))
    return found


def _best(one: Tried) -> float:
    """Returns the seconds of the fastest repeat, all steps together."""
    return float(min(map(sum, zip(*one["seconds"].values(), strict=True))))


def odd_node(who: Who, seen: Tried, well: int, usual: float) -> Finding:
    nodes = counted(well, "other node")
    told = {"where": who, "others": f"; {nodes} took {duration(usual)}"}
    return _unusable(SAID[seen["state"]], who, seen, f"{nodes} can use it", well > 1, **told)


def everywhere(seen: Tried, nodes: Sequence[Who], total: int) -> Finding:
    where = f"{len(nodes)} of {total} nodes ({hosts(nodes)})" if total > 1 else str(nodes[0])
    row = replace(SAID[seen["state"]], condition="broken", drains_node=False)
    who = Who("file", (), None, seen["path"])
    found = _unusable(row, who, seen, f"seen on {where}", total > 1, where=where, others="")
    return replace(found, next=_next(seen, nodes[0].host))


def _unusable(row: Row, who: Who, seen: Tried, why: str, clear: bool, **told: object) -> Finding:
    row = row if clear else replace(row, sure=("medium", "{why}"))
    path, detail = seen["path"], _detail(seen)
    found = row.found(who, *_evidence(seen), path=path, detail=detail, why=why, **told)
    return replace(found, next=_next(seen, who.host))


def _detail(seen: Tried) -> str:
    step = seen["stopped_at"]
    if seen["state"] == "hangs":
        # The time includes the steps before the one that hangs.
        before = sum(map(sum, seen["seconds"].values()))
        text = f"no answer to {step} within {duration(seen['waited'] - before, 0)}"
        return text + (f", {duration(before, 0)} after it began" if before >= 0.5 else "")
    return f"{step}: {seen['error']}"


def _evidence(seen: Tried) -> tuple[Evidence, ...]:
    found = [Evidence(_detail(seen), seen["path"])]
    if seen["left"]:
        found.append(Evidence(f"left behind, and no signal ends it: {seen['left']}", "wchan"))
    return tuple(found)


def _next(seen: Tried, host: str | None) -> tuple[str, ...]:
    path = seen["path"]
    if seen["state"] == "full":
        return (f"df -h {path}; df -i {path}  (on {host})",)
    return (
        f"findmnt -T {path}; timeout 5 stat -f {path}  (on {host})",
        f"dmesg -T | grep -iE 'nfs|lustre|not responding|i/o error'  (on {host})",
    )


def stage(options: Options) -> Stage[Plan, Result, list[Finding]]:
    def make_plan(run: RunState) -> Plan:
        leaders = pack_leaders(by_lowest_rank(run))
        return {"ranks": leaders, "paths": options.paths, "seconds": _SECONDS}

    return Stage(NAME, _SECONDS + _LONGEST_WAIT + 5, _measure, _judge, make_plan)

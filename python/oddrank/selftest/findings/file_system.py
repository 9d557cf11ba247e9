"""The causes of the stage file_system: one function each."""

from collections.abc import Mapping, Sequence
from typing import Any

from oddrank.finding import Condition, Confidence, Evidence, Finding, Who
from oddrank.selftest.findings.names import hosts

# State -> what it is called, the condition, and the cause.
_SAID: dict[str, tuple[str, Condition, str]] = {
    "hangs": ("does not answer in time", "broken", "file-system-hangs"),
    "missing": ("is missing", "different", "path-missing"),
    "read-only": ("is read-only", "different", "path-read-only"),
    "not writable": ("can't be written", "different", "path-not-writable"),
    "full": ("is full", "broken", "file-system-full"),
    "broken": ("is broken", "broken", "file-system-broken"),
}


def node(who: Who, seen: Mapping[str, Any], well: int, usual: float) -> Finding:
    """Most nodes get on with this path, and this one does not."""
    text, condition, cause = _SAID[seen["state"]]
    path = seen["path"]
    nodes = f"{well} other node{'s' if well > 1 else ''}"
    return Finding(
        condition=condition,
        who=who,
        cause=cause,
        what=f"file system {path} {text} on {who}: {_detail(seen)}; {nodes} took"
        f" {usual * 1e3:.3g} ms",
        stage="file_system",
        evidence=_evidence(seen),
        confidence=Confidence("high" if well > 1 else "medium", f"{nodes} can use it"),
        next=_next(seen, who.host),
    )


def everywhere(seen: Mapping[str, Any], nodes: Sequence[Who], total: int) -> Finding:
    """Most nodes, or all: it is the file system, and not they."""
    text, _, cause = _SAID[seen["state"]]
    path = seen["path"]
    where = f"{len(nodes)} of {total} nodes ({hosts(nodes)})" if total > 1 else str(nodes[0])
    return Finding(
        condition="broken",
        who=Who("file", (), None, path),
        cause=cause,
        what=f"file system {path} {text} on {where}: {_detail(seen)}",
        stage="file_system",
        evidence=_evidence(seen),
        confidence=Confidence("high" if total > 1 else "medium", f"so it is on {where}"),
        next=_next(seen, nodes[0].host),
    )


def nowhere(seen: Mapping[str, Any], nodes: Sequence[Who], total: int) -> Finding:
    """Asked for, and missing wherever one answers: a slip of the pen, or mounted nowhere."""
    path = seen["path"]
    several = "any node" if len(nodes) == total else "any of the nodes that answer"
    where = several if total > 1 else str(nodes[0])
    return Finding(
        condition="unknown",
        who=Who("file", (), None, path),
        cause="no-such-path",
        what=f"folder {path} does not exist on {where}: is it typed right, and mounted?",
        stage="file_system",
        evidence=(Evidence(_detail(seen), path),),
        confidence=Confidence("medium", "what is missing everywhere sets no node apart"),
        next=(
            f"findmnt -T {path}; namei -l {path}"
            f"  (on {nodes[0].host}: what is mounted there, and which part of it is missing)",
        ),
    )


def slow(who: Who, seen: Mapping[str, Any], seconds: float, usual: float, well: int) -> Finding:
    """By more than can be chance, and so much that it is felt."""
    path = seen["path"]
    steps = {step: min(repeats) for step, repeats in seen["seconds"].items() if repeats}
    worst = max(steps, key=lambda step: steps[step])
    return Finding(
        condition="suspicious",
        who=who,
        cause="slow-file-system",
        what=f"file system {path} is slow on {who}: a small file takes {seconds * 1e3:.0f} ms,"
        f" on most nodes {usual * 1e3:.3g} ms",
        stage="file_system",
        evidence=(
            Evidence(
                f"the best of {len(seen['seconds'][worst])}, of which {worst} takes"
                f" {steps[worst] * 1e3:.0f} ms",
                "create, write, fsync, read, unlink",
                value=round(seconds, 6),
                unit="s",
                median=round(usual, 6),
            ),
            *_evidence(seen)[1:],
        ),
        confidence=Confidence(
            "medium", f"measured once; {well} nodes are at least 10 times faster"
        ),
        next=_next(seen, who.host),
    )


def _detail(seen: Mapping[str, Any]) -> str:
    step = seen["stopped_at"]
    if seen["state"] == "hangs":
        # The steps before it took their part of the time.
        before = sum(map(sum, seen["seconds"].values()))
        text = f"no answer to {step} within {max(0.0, seen['waited'] - before):.0f} s"
        return text + (f", {before:.0f} s after it began" if before >= 0.5 else "")
    return f"{step}: {seen['error']}"


def _evidence(seen: Mapping[str, Any]) -> tuple[Evidence, ...]:
    found = [Evidence(_detail(seen), seen["path"])]
    if seen["mount"]:
        found.append(Evidence(f"{seen['path']} is {seen['mount']}", "/proc/self/mountinfo"))
    if seen["left"]:
        found.append(Evidence(f"left behind: {seen['left']}, that nothing can end", "wchan"))
    return tuple(found)


def _next(seen: Mapping[str, Any], host: str | None) -> tuple[str, ...]:
    path = seen["path"]
    if seen["state"] == "full":
        return (f"df -h {path}; df -i {path}  (on {host})",)
    return (
        f"findmnt -T {path}; timeout 5 stat -f {path}  (on {host})",
        f"dmesg -T | grep -iE 'nfs|lustre|not responding|i/o error'  (on {host})",
    )

"""Reads what kubectl tells, as JSON or text: how containers ended, and faults of nodes.

A pod is known by its name; its rank by RANK or NODE_RANK in its environment, or by the index that
its job gives it, if the pod is one rank. Launchers such as torchrun start several ranks in a pod.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from oddrank.inputs import Item, Notes
from oddrank.inputs.files import is_text
from oddrank.triage.evidence import Kind, lines, of_json, time_in
from oddrank.triage.facts import Death, Fact, Identity, Process, Source, Trouble

_VERSION = re.compile(rb'"apiVersion"\s*:\s*"')
_KIND = re.compile(rb'"kind"\s*:\s*"(?:Pod|Node|Event|List)')
_LAUNCHER = re.compile(
    r"\b(?:torchrun|torch[./]distributed[./](?:run|launch)|deepspeed|accelerate|mpirun|mpiexec"
    r"|horovodrun|colossalai)\b"
)
_PER_POD = re.compile(r"--n(?:proc|procs)[-_]per[-_]node[=\s]+(\w+)")
# Conditions of a node that are well when they are "True"; all others when they are not.
_WELL_IF_TRUE = frozenset({"Ready"})
_ENDED = {137: 9, 139: 11, 134: 6, 143: 15}
# Reasons of events that tell of a fault, with their kind.
_EVENTS = {
    "OOMKilling": "oom", "SystemOOM": "oom", "NodeNotReady": "node", "Rebooted": "node",
    "KernelDeadlock": "node", "KernelOops": "node", "TaskHung": "hung-task", "DiskPressure": "disk",
    "FilesystemIsReadOnly": "disk", "NodeHasDiskPressure": "disk", "FailedMount": "file-system",
    "XidError": "xid", "GPUXid": "xid", "NVLinkError": "nvlink", "NodeShutdown": "node",
}  # fmt: skip
_FATAL = ("NodeNotReady", "Rebooted", "KernelDeadlock", "NodeShutdown")
# Text: rows of `get pods`, events, and fields of `describe pod`, which come after its name.
_STATES = ("Evicted", "OOMKilled", "NodeLost", "CrashLoopBackOff", "ContainerStatusUnknown",
           "ContainerCannotRun", "Error    ")  # fmt: skip
_TEXT = lines.words(*_STATES, *(f"{reason} " for reason in _EVENTS), "Exit Code:  ", "Reason:  ",
                    "Name:  ", "Node:  ")  # fmt: skip
_POD = re.compile(r"(?:^|\s)([a-z\d][a-z\d.-]*)\s+\d+/\d+\s+(\S+)\s+\d+\s")
_WARNING = re.compile(r"\bWarning\s+(\w+)\s+(?:(pod|node)/(\S+)\s+)?(\S.*)")
_FIELD = re.compile(r"(?:(Name|Node)|\s*(Reason|Exit Code)):\s+(\S+)")


def _sniff(item: Item) -> bool:
    head = item.head.lstrip()
    found = head.startswith(b"{") and _VERSION.search(head) and _KIND.search(head)
    return bool(found) and is_text(item)


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    for item in items:
        yield from of_json(item, notes, partial(_objects, item, notes), most=256 << 20)


def _objects(item: Item, notes: Notes, document: dict[str, Any]) -> Iterator[Fact]:
    broken = 0
    for row in document.get("items", [document]):
        try:
            if read := _READERS.get(row["kind"]):
                yield from list(read(row, Source(item.name)))
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            broken += 1
    if broken:
        notes.add(item, f"{broken} objects of Kubernetes with unexpected values")


def _pod(pod: dict[str, Any], source: Source) -> Iterator[Fact]:
    meta, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    name, node = str(meta["name"]), spec.get("nodeName")
    process = Process(_rank(pod), name)
    if process.rank is not None:
        yield Identity(process, source)
    if status.get("reason") == "Evicted" or _evicted(status):
        text = str(status.get("message") or "evicted")[:200]
        yield Death(process, "evicted", source, _time(_evicted(status)), True, by="scheduler",
                    text=f"pod {name}: {text}")  # fmt: skip
    elif status.get("reason") == "NodeLost":
        yield from _state("NodeLost", name, source, node=node)
    containers = status.get("containerStatuses", ())
    for container in (*containers, *status.get("initContainerStatuses", ())):
        for state in ("state", "lastState"):
            if ended := container.get(state, {}).get("terminated"):
                yield from _ended(container, ended, process, source)
    if restarts := max((int(c.get("restartCount", 0)) for c in containers), default=0):
        text = f"pod {name}: its container was restarted"
        yield Trouble("node", text, source, node, count=restarts, whose="notice")


def _ended(
    container: dict[str, Any], ended: dict[str, Any], process: Process, source: Source
) -> Iterator[Fact]:
    code, reason = int(ended.get("exitCode", 0)), str(ended.get("reason", ""))
    signal = int(ended.get("signal") or 0) or _ENDED.get(code)
    if not code and not signal and reason in ("Completed", ""):
        return
    oom = reason == "OOMKilled"
    signal = 9 if oom else signal
    name = f", container {container['name']}" if "name" in container else ""
    what = f"pod {process.host or '?'}{name}: {reason or 'ended'}"
    message = str(ended.get("message") or "").strip().splitlines()
    yield Death(
        process, "oom" if oom else "signal" if signal else "exit", source,
        _time(ended.get("finishedAt")), True, signal, code, "kernel" if oom else "",
        f"{what}{f': {message[-1]}' if message else ''}"[:300],
    )  # fmt: skip


def _evicted(status: dict[str, Any]) -> Any:
    """Returns when a pod was evicted or preempted; None if it was not."""
    return next(
        (each.get("lastTransitionTime") for each in status.get("conditions", ())
         if each.get("type") == "DisruptionTarget" and each.get("status") == "True"),
        None,
    )  # fmt: skip


def _rank(pod: dict[str, Any]) -> int | None:
    """Returns the pod's rank, if the pod is one rank: its environment says so."""
    values: dict[str, str] = {}
    typed = ""
    for container in pod.get("spec", {}).get("containers", ()):
        typed += " ".join(map(str, (*(container.get("command") or ()),
                                    *(container.get("args") or ()), "")))  # fmt: skip
        for row in container.get("env") or ():
            if isinstance(row.get("value"), str):
                values.setdefault(str(row.get("name")), row["value"])
    said = _PER_POD.search(typed)
    per_pod = said[1] if said else values.get("PET_NPROC_PER_NODE") or values.get("NPROC_PER_NODE")
    rank = values.get("RANK")
    if rank is None and per_pod == "1":
        labels = pod["metadata"].get("labels") or {}
        rank = (
            values.get("NODE_RANK")
            or values.get("PET_NODE_RANK")
            or labels.get("training.kubeflow.org/replica-index")
            or labels.get("batch.kubernetes.io/job-completion-index")
        )
    elif per_pod != "1" and (per_pod or _LAUNCHER.search(typed)):
        return None  # RANK is the node's then
    return int(rank) if rank is not None and re.fullmatch(r"\d{1,7}", rank) else None


def _node(node: dict[str, Any], source: Source) -> Iterator[Fact]:
    name = str(node["metadata"]["name"])
    for condition in node.get("status", {}).get("conditions", ()):
        kind, value = str(condition["type"]), str(condition["status"])
        well = value == "True" if kind in _WELL_IF_TRUE else value != "True"
        if not well:
            text = f"{kind} is {value}: {condition.get('message') or condition.get('reason')}"
            when = _time(condition.get("lastTransitionTime"))
            yield Trouble("node", text[:200], source, name, fatal=kind == "Ready", time=when,
                          last=when)  # fmt: skip


def _event(event: dict[str, Any], source: Source) -> Iterator[Fact]:
    reason = str(event.get("reason"))
    about = event.get("involvedObject") or event.get("regarding") or {}
    if reason in _EVENTS and about.get("kind") in ("Node", "Pod"):
        host = about.get("name") if about["kind"] == "Node" else event.get("source", {}).get("host")
        first = _time(event.get("firstTimestamp") or event.get("eventTime"))
        last = _time(event.get("lastTimestamp")) or first
        text = f"{reason}: {event.get('message') or event.get('note')}"[:200]
        yield Trouble(_EVENTS[reason], text, source, host, fatal=reason in _FATAL,
                      count=int(event.get("count") or 1), time=first, last=last)  # fmt: skip


def _time(text: object) -> float | None:
    when, guessed = time_in(str(text))
    return None if guessed else when


def _typed(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    for item in items:
        fields: dict[str, str] = {}
        for number, line in lines.matching(item, _TEXT, notes):
            yield from _of_line(line, fields, Source(item.name, number))


def _of_line(line: str, fields: dict[str, str], source: Source) -> Iterator[Fact]:
    """Reads a line of text. fields: what `describe` said before it of the same pod."""
    pod = fields.get("Name", "")
    if row := _POD.search(line):
        yield from _state(row[2].rpartition(":")[2], row[1], source)
    elif event := _WARNING.search(line):
        if event[1] == "Evicted":
            yield from _state(event[1], event[3] or pod, source, event[4])
        elif event[1] in _EVENTS:
            host = event[3] if event[2] == "node" else fields.get("Node")
            yield Trouble(_EVENTS[event[1]], f"{event[1]}: {event[4]}"[:200], source, host,
                          fatal=event[1] in _FATAL)  # fmt: skip
    elif field := _FIELD.match(line):
        name, value = field[1] or field[2], field[3]
        fields[name] = value.partition("/")[0] if name == "Node" else value
        reason = fields.get("Reason", "")
        if name == "Reason" and value in _STATES[:3]:
            yield from _state(value, pod, source, node=fields.get("Node"))
        elif name == "Exit Code" and value.isdecimal() and reason != "OOMKilled":
            ended = {"exitCode": value[:9], "reason": reason}
            yield from _ended({}, ended, Process(None, pod or None), source)
    elif "OOMKilled" in line:
        yield from _state("OOMKilled", pod, source, line.strip())


def _state(
    state: str, pod: str, source: Source, text: str = "", node: str | None = None
) -> Iterator[Fact]:
    """Yields what the state of a pod tells, if it did not end well."""
    process = Process(None, pod or None)
    text = f"{f'pod {pod}: ' if pod else ''}{text or state}"[:200]
    if state == "Evicted":
        yield Death(process, "evicted", source, by="scheduler", text=text)
    elif state == "OOMKilled":
        yield Death(process, "oom", source, signal=9, by="kernel", text=text)
    elif state == "NodeLost":
        yield Trouble("node", f"pod {pod}: its node was lost", source, node, fatal=True)
    elif state.strip() in _STATES or state.endswith("Error"):
        yield Death(process, "exit", source, text=text)


def _is_typed(item: Item) -> bool:
    return is_text(item) and any(i < len(_STATES) + len(_EVENTS) or "Exit" in _TEXT.each[i][0]
                                 for _, i in lines.numbers(item, _TEXT) or ())  # fmt: skip


_READERS = {"Pod": _pod, "Node": _node, "Event": _event}
# Readers of logs would take its words, such as OOMKilled, for a second death: it is of one kind.
KIND = Kind("Kubernetes", binary=True, sniff=_sniff, read=_read)
TYPED = Kind("kubectl", binary=False, sniff=_is_typed, read=_typed)

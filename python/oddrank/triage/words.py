"""Words for what sentences of triage are made of: processes, calls, groups, places."""

from collections.abc import Sequence
from functools import lru_cache

from oddrank.finding import Who, group_name, ranks_text
from oddrank.triage import leaves
from oddrank.triage.facts import Call, Frame, Group, Process, ranks
from oddrank.triage.suspects import Suspect

_MOST_PIDS = 4
_MOST_PLACES = 3


def who(processes: Sequence[Process]) -> Who:
    """Returns the subject: ranks with the host they share, else processes by their pids."""
    known = ranks(processes)
    hosts = {p.host for p in processes if p.host}
    host = hosts.pop() if len(hosts) == 1 else None
    if known:
        return Who("rank", known, host)
    host = host if all(p.host for p in processes) else None
    pids = sorted({p.pid for p in processes if p.pid is not None})
    labels = sorted({p.label for p in processes if p.label})
    if len(pids) == len(labels) == 1:
        return Who("process", (), host, f"{labels[0]} (pid {pids[0]})")
    if pids:
        few = ", ".join(map(str, pids[:_MOST_PIDS])) + (", ..." if len(pids) > _MOST_PIDS else "")
        return Who("process", (), host, f"{'pids' if len(pids) > 1 else 'pid'} {few}")
    if labels:
        more = f" and {len(labels) - 1} more" if len(labels) > _MOST_PIDS else ""
        return Who("process", (), host, ", ".join(labels[:1] if more else labels) + more)
    return Who("node", (), host) if host else Who("process", (), None, "a process")


def count(processes: Sequence[Process]) -> str:
    """Returns processes as the object of a sentence: ranks 0-5, 7; or 3 processes."""
    known = ranks(processes)
    if known:
        return ranks_text(known)
    if processes and len(processes) <= _MOST_PIDS and all(p.pid or p.label for p in processes):
        return str(who(processes))
    return f"{len(processes)} process{'es' if len(processes) != 1 else ''}"


def call_text(call: Call | None) -> str:
    """Returns a call with its number: all_reduce 15118."""
    if call is None:
        return ""
    return call.op if call.seq is None else f"{call.op or 'call'} {call.seq}"


@lru_cache(maxsize=1 << 12)  # asked for each rank, and folding all ranks takes long
def group_text(group: Group | None) -> str:
    """Returns a group by its description or name, with its ranks if they are few."""
    if group is None or not (group.name or group.text or group.ranks):
        return ""
    return group_name(group.title, group.ranks)


def call_of(call: Call | None, group: Group | None, unknown: str = "") -> str:
    """Returns a call with its group: all_reduce 9 of default_pg (ranks 0-3)."""
    text, of = call_text(call) or unknown, group_text(group)
    return f"{text} of {of}" if text and of else text


def full_call(suspect: Suspect, unknown: str = "") -> str:
    """Returns the call in which others wait, with its group."""
    return call_of(suspect.at, suspect.group, unknown)


def place_text(frame: Frame | None) -> str:
    """Returns a frame as _try_get_data (dataloader.py:1011); "" if nothing is known of it."""
    if frame is None or (frame.function == "?" and not frame.file):  # its name was lost
        return ""
    file = frame.file.rpartition("/")[2]
    line = f":{frame.line}" if frame.line is not None else ""
    return f"{frame.function} ({file}{line})" if file else frame.function


def own_place(site: Sequence[Frame], other: Frame | None = None) -> str:
    """Returns the innermost frame of the user's own; else of code that is installed; else other."""
    own = next((frame for frame in site if leaves.is_own(frame)), None)
    return place_text(own or next((f for f in site if not leaves.kind_of(f)), other))


def issued(call: Call, differs: str) -> str:
    """Returns a call with that in which it differs from another one, and its place."""
    at = f" at {place}" if (place := own_place(call.site)) else ""
    if differs in ("op", "order"):
        return (f"{call.op} of {call.sizes}" if call.sizes else call.op) + at
    value = {
        "dtype": call.dtype, "sizes": call.sizes or f"{call.bytes} bytes", "root": call.root,
        "peer": call.peer,
    }[differs]  # fmt: skip
    return f"{call.op} with {differs} {value}{at}"


def places_text(frames: Sequence[Frame | None]) -> str:
    """Returns places as the end of a sentence: next (data.py:17), next (data.py:19) and 2 more."""
    places = [*dict.fromkeys(filter(None, map(place_text, frames)))]
    if len(places) > _MOST_PLACES:
        places[_MOST_PLACES - 1 :] = [f"{len(places) - _MOST_PLACES + 1} more places"]
    return " and ".join(filter(None, (", ".join(places[:-1]), *places[-1:])))


def waiters(suspect: Suspect, where: str = "") -> str:
    """Returns the waiting ranks and their call: the last part of a sentence.

    where: the call, if the sentence has named it already.
    """
    if not suspect.waiting:
        return ""
    if suspect.rule in ("last-to-end", "last-to-leave"):
        have, leave = ("have", "leave") if len(suspect.waiting) > 1 else ("has", "leaves")
        does = f"{have} finished" if suspect.rule == "last-to-end" else f"{leave} a group"
        return f"; {count(suspect.waiting)} {does}"
    them = "them" if len(suspect.processes) > 1 else "it"
    if not where and (at := full_call(suspect)):
        where = f"in {at}"
    there, others = apart(suspect)
    text = f"; {count(there)} {wait(there)} for {them} {where}".rstrip()
    return f"{text}, {count(others)} in other calls" if others else text


def apart(suspect: Suspect) -> tuple[list[Process], list[Process]]:
    """Returns the waiting processes that stand in the named call, and those elsewhere."""
    group = suspect.group.ranks if suspect.group and call_text(suspect.at) else ()
    members = {*(ranks(suspect.there) if suspect.there else group)}
    there = [p for p in suspect.waiting if p.rank is None or p.rank in members]
    others = [p for p in suspect.waiting if p.rank is not None and p.rank not in members]
    return (there, others) if members and there else ([*suspect.waiting], [])


def wait(processes: Sequence[Process]) -> str:
    return "wait" if len(processes) > 1 else "waits"


def step_text(suspect: Suspect) -> str:
    """Returns `, step 812` or `, in stage device`, if the culprit's last step or stage is known."""
    stage = f", in stage {suspect.stage}" if suspect.stage else ""
    return f", step {suspect.step}" if suspect.step is not None else stage

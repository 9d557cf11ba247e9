"""The sentences of triage: one function a cause, the only place with these texts."""

import re
import signal
import time
from collections.abc import Callable, Sequence

from oddrank.finding import (
    Condition,
    Confidence,
    Evidence,
    Finding,
    Kind,
    Level,
    Who,
    group_name,
    ranks_text,
)
from oddrank.triage.facts import Call, Frame, Group, Point, Process, Suspect, Trouble, ranks
from oddrank.triage.rules import RULES

_LEVELS: tuple[Level, Level, Level] = ("low", "medium", "high")
_MOST_POINTS = 12
_MOST_PIDS = 4
# Class of a leaf -> what a host does that stands there.
_DOING = {
    "data": "waits for data",
    "gpu": "waits for its GPU",
    "disk": "waits for a file",
    "file-lock": "waits for the lock of a file",
    "pipe": "waits for a pipe",
    "child": "waits for a child process",
    "lock": "waits for a lock",
    "network": "waits for the network",
    "peers": "waits for other ranks",
    "running": "runs",
}
_MOST_CALLS = 4  # that a sentence names
_SIZES = re.compile(r"(\d+) vs\.? (\d+)")
_NOT_TOLD = "what was read does not tell"


def finding(suspect: Suspect, next_: Sequence[str] = (), folder: str = "") -> Finding:
    """Returns the finding of a suspect. next_: commands to type; folder: left out of sources."""
    condition, text = _CAUSES[suspect.cause](suspect)
    return Finding(
        condition=condition,
        who=_who(suspect, condition),
        cause=suspect.cause,
        what=text,
        stage=call_text(suspect.at) or None,
        evidence=tuple(_evidence(point, folder) for point in _points(suspect))[:_MOST_POINTS],
        confidence=_confidence(suspect),
        next=tuple(next_),
        drains_node=_is_fault_of_node(suspect),
    )


def _is_fault_of_node(suspect: Suspect) -> bool:
    """Returns whether another node would do better: a device's fault, a GPU or a kernel that stands
    still, a node that nobody reaches. What a program or its user did goes on elsewhere."""
    if suspect.cause == "device":
        return any(t.fatal and t.whose == "hardware" for t in suspect.trouble)
    return suspect.cause in ("gpu-stopped", "unreachable") or (
        suspect.cause == "host-stuck" and suspect.rule == "held"
    )


def _who(suspect: Suspect, condition: Condition) -> Who:
    if condition == "unknown":
        return _nobody(suspect)
    if suspect.trouble and not suspect.processes and suspect.cause in ("device", "application"):
        return _device_who(suspect.trouble[0])
    return who(suspect.processes)


def _device_who(trouble: Trouble) -> Who:
    """Returns the subject of a fault that nothing ties to a rank."""
    device = (trouble.device or "").removeprefix("GPU ") or None
    kinds: dict[str, Kind] = {"xid": "gpu", "gpu": "gpu", "ib-flap": "link", "link-flap": "link"}
    return Who(kinds.get(trouble.kind, "node"), (), trouble.host, device)


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


def group_text(group: Group | None) -> str:
    """Returns a group by its description or name, with its ranks if they are few."""
    if group is None or not (group.name or group.text or group.ranks):
        return ""
    return group_name(group.title, group.ranks)


def place_text(frame: Frame | None) -> str:
    """Returns a frame as _try_get_data (dataloader.py:1011); "" if nothing is known of it."""
    if frame is None or (frame.function == "?" and not frame.file):  # its name was lost
        return ""
    file = frame.file.rpartition("/")[2]
    line = f":{frame.line}" if frame.line is not None else ""
    return f"{frame.function} ({file}{line})" if file else frame.function


def _nobody(suspect: Suspect) -> Who:
    return who(suspect.processes or suspect.waiting)


def _subject(suspect: Suspect) -> tuple[str, str, str]:
    """Returns the subject, its verb "to be", and its pronoun as an object."""
    name = who(suspect.processes)
    several = len(suspect.processes) > 1
    return str(name), "are" if several else "is", "them" if several else "it"


def _waiters(suspect: Suspect, where: str = "") -> str:
    """Returns who waits for the culprits: the last part of a sentence.

    where: the call, if the sentence has named it already.
    """
    if not suspect.waiting:
        return ""
    if suspect.rule == "last-to-end":
        have = "have" if len(suspect.waiting) > 1 else "has"
        return f"; {count(suspect.waiting)} {have} finished"
    *_, them = _subject(suspect)
    at, group = call_text(suspect.at), group_text(suspect.group)
    if not where and at:
        where = f"in {at} of {group}" if group else f"in {at}"
    # Others wait for those who are there, or for the culprits in other calls.
    members = set(suspect.group.ranks) if suspect.group else set()
    if suspect.there:
        members = set(ranks(suspect.there))
    there = [p for p in suspect.waiting if p.rank is None or p.rank in members]
    if not members or not there or not at:
        there = list(suspect.waiting)
    inside = set(map(id, there))
    others = [p for p in suspect.waiting if id(p) not in inside]
    text = f"; {count(there)} {_wait(there)} for {them} {where}".rstrip()
    return f"{text}, {count(others)} in other calls" if others else text


def _wait(processes: Sequence[Process]) -> str:
    return "wait" if len(processes) > 1 else "waits"


def _stuck(
    suspect: Suspect, how: str, *, place: str = "", where: str = ""
) -> tuple[Condition, str]:
    name, be, _ = _subject(suspect)
    be = be if suspect.certainty else "may be"
    why = f" in {place}" if place else f": {how}"
    return "stuck", f"{name} {be} stuck{why}{_waiters(suspect, where)}"


def _host_stopped(suspect: Suspect) -> tuple[Condition, str]:
    return _stuck(suspect, "stopped by a signal, a debugger or a frozen container")


def _gpu_stopped(suspect: Suspect) -> tuple[Condition, str]:
    if len(suspect.processes) > 1:
        return _stuck(suspect, "their hosts issue more calls, but their GPUs complete none")
    return _stuck(suspect, "its host issues more calls, but its GPU completes none")


def _not_entered(suspect: Suspect) -> tuple[Condition, str]:
    they = "they have" if len(suspect.processes) > 1 else "it has"
    at = call_text(suspect.at)
    if not at:
        return _stuck(suspect, f"{they} not entered the call that the others are in")
    if group := group_text(suspect.group):
        at = f"{at} of {group}"
    return _stuck(suspect, f"{they} not entered {at}", where="there")


def _inside_call(suspect: Suspect) -> tuple[Condition, str]:
    name, _, _ = _subject(suspect)
    at, own = call_text(suspect.at) or "a call", suspect.own
    if own is not None and suspect.at is not None and own.seq != suspect.at.seq:
        have = "have" if len(suspect.processes) > 1 else "has"
        of = group_text(suspect.group)
        how = f"inside {call_text(own)} of {of}, which the others have completed"
        return _stuck(suspect, f"{how}; {name} {have} not entered {at}", where="there")
    return _stuck(suspect, f"inside {at}, or in one before it, and nobody else is behind")


def _entered_or_inside(suspect: Suspect) -> tuple[Condition, str]:
    name, be, them = _subject(suspect)
    at = call_text(suspect.at) or "the call"
    if suspect.rule == "init-not-begun":
        text = f"{count(suspect.waiting)} wait in {at}, and {name} printed no line of it"
        return "unknown", f"{text}: whether it was not reached or not logged can't be told"
    if suspect.certainty == 0 and suspect.rule == "counts-behind":
        text = f"{name} {be} behind {count(suspect.waiting)} in {at}"
        return "unknown", f"{text}, as in healthy jobs, too: only counts that stand still tell"
    if suspect.certainty == 0:
        text = f"{count(suspect.waiting)} {_wait(suspect.waiting)} in {at}"
        text += f", and {name} left no word of it"
        return "unknown", f"{text}: whether they wait for {them} can't be told"
    they = "they have" if len(suspect.processes) > 1 else "it has"
    return _stuck(suspect, f"{they} not entered {at}, or {be} inside it (a stack would tell)")


def _host_stuck(suspect: Suspect) -> tuple[Condition, str]:
    doing = _DOING.get(suspect.leaf_class, "stands")
    if suspect.rule == "held" and not suspect.leaf_class:
        doing = "inside the kernel (state D)"
    first, _, rest = doing.partition(" ")
    if len(suspect.processes) > 1 and first.endswith("s"):
        doing = f"{first[:-1]} {rest}".rstrip()
    place = place_text(suspect.leaf)
    if suspect.beside and len(suspect.processes) == 1:
        worker = place_text(suspect.beside[0])
        return _stuck(suspect, f"waits for its DataLoader worker, which stands in {worker}")
    if place and suspect.leaf_class not in _DOING:
        return _stuck(suspect, doing, place=place)
    return _stuck(suspect, f"{doing} in {place}" if place else doing)


def _deadlock(suspect: Suspect) -> tuple[Condition, str]:
    its = "their" if len(suspect.processes) > 1 else "its"
    places = dict.fromkeys(filter(None, map(place_text, (suspect.leaf, *suspect.beside))))
    where = f", in {' and '.join(places)}" if places else ""
    return _stuck(suspect, f"{its} threads wait for each other's locks{where}")


def _gil_held(suspect: Suspect) -> tuple[Condition, str]:
    place = place_text(suspect.leaf)
    where = f" in {place}" if place else ""
    return _stuck(suspect, f"one thread keeps the GIL{where}, and no other Python code can run")


def _infinite_loop(suspect: Suspect) -> tuple[Condition, str]:
    place = place_text(suspect.leaf)
    where = f" in {place}" if place else ""
    run, do = ("run", "do") if len(suspect.processes) > 1 else ("runs", "does")
    return _stuck(suspect, f"{run} on{where} and {do} not come to the next call")


_IN_PAUSE = {
    "switch": " in a switch pause",
    "breakpoint": " in a breakpoint",
    "waits": " while it waited for a rank in a breakpoint",
}


def _dead(suspect: Suspect) -> tuple[Condition, str]:
    name, _, _ = _subject(suspect)
    death = suspect.death
    if death is None:
        return "dead", f"{name} died{_waiters(suspect)}"
    if death.child:
        name = f"{name}'s {death.child}"
    text = death.text.strip().partition("\n")[0][:300]
    place = place_text(death.site[0] if death.site else suspect.leaf)
    comma = "," if death.how == "exception" and ": " in text else ""
    at = f"{comma} at {place}" if place else ""
    by = f" by the {death.by}" if death.by else ""
    if death.how == "exception":
        how = f"raised {text or 'an exception'}{at}"
    elif death.how == "signal":
        if suspect.pauses and not death.site:
            at = _IN_PAUSE[suspect.pauses[0].pause.kind]
        how = f"was killed{by} with {_signal_name(death.signal)}{at}"
    elif death.how == "oom":
        how = f"ran out of memory and was killed{by}" if death.by else "ran out of memory"
    elif death.how == "exit":
        how = "exited" if death.code is None else f"exited with code {death.code}{at}"
    elif death.how == "evicted":
        how = f"was evicted{by}"
    else:
        how = f"aborted{at}" + (f": {text}" if text else "")
    if death.how in ("signal", "oom", "exit", "evicted") and text:
        how += f" ({text})"
    if len(suspect.processes) > 1:
        how = how.replace("was ", "were ", 1)
    if suspect.step is not None:
        how += f", step {suspect.step}"
    return "dead", f"{name} {how}{_waiters(suspect)}"


def _finished(suspect: Suspect) -> tuple[Condition, str]:
    name, _, _ = _subject(suspect)
    at, group = call_text(suspect.at) or "a call", group_text(suspect.group)
    at += f" of {group}" if group else ""
    death = suspect.death
    if death is None:
        text = f"{name} {_wait(suspect.processes)} in {at}, which "
        if len(suspect.waiting) == 1:
            return "stuck", f"{text}{count(suspect.waiting)} never makes: it has finished"
        others = count(suspect.waiting) if suspect.waiting else "the others"
        return "stuck", f"{text}{others} never make: they have finished"
    step = f" after step {suspect.step}" if suspect.step is not None else ""
    place = place_text(death.site[0]) if death.site else ""
    text = f"{name} ended with exit code 0{step}" + (f", at {place}," if place else "")
    waiting = suspect.waiting
    text += f" while {count(waiting)} {_wait(waiting)} in {at}: uneven batches?" if waiting else ""
    return "dead", text


def _mismatch(suspect: Suspect) -> tuple[Condition, str]:
    found = suspect.mismatch
    name, _, _ = _subject(suspect)
    if found is None:
        at, of = call_text(suspect.at), group_text(suspect.group)
        where = f" of {of}" if at and of else ""
        before = "what was never issued after the same calls before"
        return "mismatch", f"{name} issued {at or 'a call'}{where}: {before}{_waiters(suspect)}"
    usual, *others = found.variants
    of = group_text(suspect.group or found.group)
    where = f"call {found.seq}" + (f" of {of}" if of else "")
    says = _same if found.differs in ("op", "order") else _with
    odd = "; ".join(f"{ranks_text(v.ranks)} issued {says(v.call, found.differs)}" for v in others)
    text = f"{odd} as {where}, {ranks_text(usual.ranks)} {says(usual.call, found.differs)}"
    if found.differs == "order":
        text += ": the same calls, in another order"
    return "mismatch", text


def _same(call: Call, _: str) -> str:
    return f"{call.op}{f' of {call.sizes}' if call.sizes else ''}"


def _with(call: Call, differs: str) -> str:
    value = {
        "dtype": call.dtype,
        "sizes": call.sizes or f"{call.bytes} bytes",
        "root": call.root,
        "peer": call.peer,
    }[differs]
    name = {"sizes": "sizes", "dtype": "dtype"}.get(differs, differs)
    return f"{call.op} with {name} {value}"


def _shared_group(suspect: Suspect) -> tuple[Condition, str]:
    name, _, _ = _subject(suspect)
    use = "use" if len(suspect.processes) > 1 else "uses"
    text = f"{name} {use} {group_text(suspect.group) or 'a group'} from several threads at once"
    each = f" ({', '.join(suspect.threads)})" if suspect.threads else ""
    return "mismatch", f"{text}{each}: their calls meet in no fixed order"


def _cycle(suspect: Suspect) -> tuple[Condition, str]:
    # Other evidence has added its points after those of the circle.
    parts = "; ".join(point.text for point in suspect.support[: max(1, len(suspect.cycle))])
    name, _, _ = _subject(suspect)
    wait = "wait" if suspect.certainty else "may wait"
    if suspect.rule == "opposed-messages":
        return "stuck", f"{name} {wait} for each other: {parts}{_waiters(suspect)}"
    return "stuck", f"{name} {wait} for each other in a circle: {parts}"


def _outside(suspect: Suspect) -> tuple[Condition, str]:
    place = place_text(suspect.leaf)
    text = "no rank waits in a call: a stall, if there is one, is in code that is no collective"
    if suspect.processes and place:
        name, be, _ = _subject(suspect)
        doing = _DOING.get(suspect.leaf_class, "stands")
        return "stuck", f"no rank waits in a call; {name} {be} in {place}: it {doing}"
    if suspect.rule == "no-recorded-call":
        text = (
            "no rank waits in a call that is recorded: a stall, if there is one, is in a send or"
            " receive over gloo, or in code that is no collective"
        )
    return "unknown", text


def _moving(suspect: Suspect) -> tuple[Condition, str]:
    name, be, _ = _subject(suspect)
    place = place_text(suspect.leaf)
    where = f" in {place}" if place else ""
    be = be if suspect.certainty else "may be"
    return "slow", f"{name} {be} slow, but moves{where}{_waiters(suspect)}"


def _unreachable(suspect: Suspect) -> tuple[Condition, str]:
    verb = "answer" if len(suspect.processes) > 1 else "answers"
    return _stuck(suspect, f"{verb} nobody: stopped, dead, or cut off from the network")


def _device(suspect: Suspect) -> tuple[Condition, str]:
    trouble = suspect.trouble[0] if suspect.trouble else None
    text = trouble.text.strip()[:300] if trouble else "a fault of a device"
    if trouble and trouble.count > 1:
        text += f" ({trouble.count} times)"
    device = trouble.device if trouble else None
    if not suspect.processes:
        host = f"node {trouble.host}" if trouble and trouble.host else None
        name = " of ".join(part for part in (device, host) if part) or "a host"
        return "broken", f"{name} has a fault: {text}"
    place = f"{device}: " if device and device not in text else ""
    name, _, _ = _subject(suspect)
    have = "have" if len(suspect.processes) > 1 else "has"
    return "broken", f"{name} {have} a fault: {place}{text}{_waiters(suspect)}"


def _settings(suspect: Suspect) -> tuple[Condition, str]:
    told = dict.fromkeys(trouble.text for trouble in suspect.trouble)
    text = "; ".join(told) or "other settings than the others"
    if not suspect.processes:
        return "unknown", f"ranks differ in their settings: {text}"
    name, _, _ = _subject(suspect)
    return "different", f"{name} {'have' if len(suspect.processes) > 1 else 'has'} {text}"


def _application(suspect: Suspect) -> tuple[Condition, str]:
    trouble = suspect.trouble[0] if suspect.trouble else None
    device, host = (trouble.device, trouble.host) if trouble else (None, None)
    place = " of ".join(part for part in (device, host) if part) or "a GPU"
    text = trouble.text.strip()[:300] if trouble else "an error"
    name, _, _ = _subject(suspect)
    whose = f"an error of the program of {name}" if suspect.processes else "an error of a program"
    return "suspicious", f"{place} reports {text}: {whose}, not of the GPU"


def _unknown(suspect: Suspect) -> tuple[Condition, str]:
    if text := _OF_RULES.get(suspect.rule):
        return "unknown", text(suspect)
    if not suspect.waiting:
        what = suspect.support[0].text if suspect.support else "something went wrong"
        return "unknown", f"{what}, and {_NOT_TOLD} which rank began it"
    at, group = call_text(suspect.at), group_text(suspect.group)
    where = f" in {at}" if at else ""
    where += f" of {group}" if at and group else ""
    there = [p for p in suspect.waiting if not suspect.there or p in suspect.there]
    elsewhere = [p for p in suspect.waiting if p not in there]
    where += f", {count(elsewhere)} in other calls" if elsewhere else ""
    return "unknown", f"{count(there)} {_wait(there)}{where}, and {_NOT_TOLD} for whom"


def _different_calls(suspect: Suspect) -> str:
    first, *others = (point.text for point in suspect.support[:_MOST_CALLS])
    text = "; ".join([*others, first])
    return f"{text}: not the same call, and {_NOT_TOLD} who waits for whom"


def _lost_peers(suspect: Suspect) -> str:
    verb = "a connection" if len(suspect.waiting) == 1 else "connections"
    return f"{count(suspect.waiting)} lost {verb}, and {_NOT_TOLD} who ended first"


def _not_understood(suspect: Suspect) -> str:
    *loud, understood = (point.text for point in suspect.support)
    first = f"the first that tells of trouble: {loud[0]}" if loud else "none tells of an end"
    return f"{understood}, and {_NOT_TOLD} what happened; {first}"


def _told_to_end(suspect: Suspect) -> str:
    death = suspect.death
    if death is None:
        return f"the job was ended, and {_NOT_TOLD} by whom"
    name = death.process.label
    at = ""
    if death.time is not None:
        at = time.strftime(" at %H:%M:%S", time.gmtime(death.time))
        at += "" if death.wall else " UTC"
    if name == "Ctrl-C":
        return f"Ctrl-C ended the job{at}: nobody is to blame"
    if death.text:
        why = "at its time limit" if "time limit" in death.text else f"({death.text})"
        return f"{name} ended the job{at} {why}: nobody is to blame for that, and {_NOT_TOLD} more"
    if death.signal is None:
        return f"{name} cancelled the job{at}; its log does not say why"
    return f"{name} was told to end ({_signal_name(death.signal)}){at}; its log does not say why"


def _sizes_differ(suspect: Suspect) -> str:
    death = suspect.death
    if death is None:
        return f"sizes differ, and {_NOT_TOLD} whose is wrong"
    process = death.process
    known = process.rank is not None or process.pid is not None or process.label
    name = str(who([process])) if known else "a process"
    if "mismatch between collectives" in death.text:
        return f"{name} noticed that ranks issued different calls, and {_NOT_TOLD} whose is wrong"
    sizes = _SIZES.search(death.text)
    what = f"{sizes[1]} bytes where it expected {sizes[2]}" if sizes else "more than it expected"
    return f"{name} was sent {what}, and ended: its size or its peer's is wrong, or their calls are"


_OF_RULES: dict[str, Callable[[Suspect], str]] = {
    "told-to-end": _told_to_end,
    "sizes-differ": _sizes_differ,
    "stacks-different-calls": _different_calls,
    "lost-peers": _lost_peers,
    "not-understood": _not_understood,
    "never-came": lambda suspect: suspect.support[0].text,
}


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}" if number else "a signal"


def _confidence(suspect: Suspect) -> Confidence:
    level = _LEVELS[max(0, min(suspect.certainty, 2))]
    if suspect.against:
        return Confidence(level, suspect.against[0].text)
    return Confidence(level, RULES.get(suspect.rule, suspect.rule))


def _points(suspect: Suspect) -> Sequence[Point]:
    """Returns what speaks for it and against it, but for what _confidence() says."""
    against = [Point(f"against it: {p.text}", p.source) for p in suspect.against[1:]]
    return (*suspect.support, *against)


def _evidence(point: Point, folder: str) -> Evidence:
    source = str(point.source) if point.source else "triage"
    return Evidence(point.text, source.removeprefix(folder))


_CAUSES: dict[str, Callable[[Suspect], tuple[Condition, str]]] = {
    "host-stopped": _host_stopped,
    "gpu-stopped": _gpu_stopped,
    "not-entered": _not_entered,
    "inside-call": _inside_call,
    "not-entered-or-inside": _entered_or_inside,
    "host-stuck": _host_stuck,
    "deadlock": _deadlock,
    "gil-held": _gil_held,
    "infinite-loop": _infinite_loop,
    "dead": _dead,
    "finished": _finished,
    "shared-group": _shared_group,
    "mismatch": _mismatch,
    "cycle": _cycle,
    "outside": _outside,
    "moving": _moving,
    "unreachable": _unreachable,
    "device": _device,
    "application": _application,
    "settings": _settings,
    "unknown": _unknown,
}

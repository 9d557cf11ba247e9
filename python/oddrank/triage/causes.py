"""The table of causes: all that triage can say of a rank, its sentence, and what that means.

They are in the order of how surely they explain a rank that is absent.
"""

import re
import signal
import time
from collections.abc import Callable

from oddrank.finding import Condition, ranks_text
from oddrank.triage.facts import Call
from oddrank.triage.suspects import Cause, Says, Suspect
from oddrank.triage.words import (
    call_text,
    count,
    full_call,
    group_text,
    place_text,
    step_text,
    stuck,
    subject,
    wait,
    waiters,
    who,
)

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


def _several(suspect: Suspect) -> bool:
    return len(suspect.processes) > 1


def _they_have(suspect: Suspect) -> str:
    return "they have" if _several(suspect) else "it has"


def _have(suspect: Suspect) -> str:
    return "have" if _several(suspect) else "has"


def _in_leaf(suspect: Suspect) -> str:
    """Returns ` in F (FILE:LINE)`; "" if its place is not known."""
    place = place_text(suspect.leaf)
    return f" in {place}" if place else ""


def _host_stopped(suspect: Suspect) -> tuple[Condition, str]:
    return stuck(suspect, "stopped by a signal, a debugger or a frozen container")


def _gpu_stopped(suspect: Suspect) -> tuple[Condition, str]:
    if _several(suspect):
        return stuck(suspect, "their hosts issue more calls, but their GPUs complete none")
    return stuck(suspect, "its host issues more calls, but its GPU completes none")


def _not_entered(suspect: Suspect) -> tuple[Condition, str]:
    they, at = _they_have(suspect), full_call(suspect)
    if not at:
        return stuck(suspect, f"{they} not entered the call that the others are in")
    return stuck(suspect, f"{they} not entered {at}", where="there")


def _inside_call(suspect: Suspect) -> tuple[Condition, str]:
    name, _, _ = subject(suspect)
    at, own = call_text(suspect.at) or "a call", suspect.own
    if own is not None and suspect.at is not None and own.seq != suspect.at.seq:
        of = group_text(suspect.group)
        how = f"inside {call_text(own)} of {of}, which the others have completed"
        return stuck(suspect, f"{how}; {name} {_have(suspect)} not entered {at}", where="there")
    return stuck(suspect, f"inside {at}, or in one before it, and nobody else is behind")


def _entered_or_inside(suspect: Suspect) -> tuple[Condition, str]:
    name, be, them = subject(suspect)
    at = call_text(suspect.at) or "the call"
    if suspect.rule == "init-not-begun":
        text = f"{count(suspect.waiting)} wait in {at}, and {name} printed no line of it"
        return "unknown", f"{text}: whether it was not reached or not logged can't be told"
    if suspect.certainty == 0 and suspect.rule == "counts-behind":
        text = f"{name} {be} behind {count(suspect.waiting)} in {at}"
        return "unknown", f"{text}, as in healthy jobs, too: only counts that stand still tell"
    if suspect.certainty == 0:
        text = f"{count(suspect.waiting)} {wait(suspect.waiting)} in {at}"
        text += f", and {name} left no word of it"
        return "unknown", f"{text}: whether they wait for {them} can't be told"
    they = _they_have(suspect)
    return stuck(suspect, f"{they} not entered {at}, or {be} inside it (a stack would tell)")


def _host_stuck(suspect: Suspect) -> tuple[Condition, str]:
    doing = _DOING.get(suspect.leaf_class, "stands")
    if suspect.rule == "held" and not suspect.leaf_class:
        doing = "inside the kernel (state D)"
    first, _, rest = doing.partition(" ")
    if _several(suspect) and first.endswith("s"):
        doing = f"{first[:-1]} {rest}".rstrip()
    place = place_text(suspect.leaf)
    if suspect.beside and len(suspect.processes) == 1:
        worker = place_text(suspect.beside[0])
        return stuck(suspect, f"waits for its DataLoader worker, which stands in {worker}")
    if place and suspect.leaf_class not in _DOING:
        return stuck(suspect, doing, place=place)
    return stuck(suspect, f"{doing} in {place}" if place else doing)


def _deadlock(suspect: Suspect) -> tuple[Condition, str]:
    its = "their" if _several(suspect) else "its"
    places = dict.fromkeys(filter(None, map(place_text, (suspect.leaf, *suspect.beside))))
    where = f", in {' and '.join(places)}" if places else ""
    return stuck(suspect, f"{its} threads wait for each other's locks{where}")


def _gil_held(suspect: Suspect) -> tuple[Condition, str]:
    where = _in_leaf(suspect)
    return stuck(suspect, f"one thread keeps the GIL{where}, and no other Python code can run")


def _infinite_loop(suspect: Suspect) -> tuple[Condition, str]:
    run, do = ("run", "do") if _several(suspect) else ("runs", "does")
    return stuck(suspect, f"{run} on{_in_leaf(suspect)} and {do} not come to the next call")


_IN_PAUSE = {
    "breakpoint": " in a breakpoint",
    "waits": " while it waited for a rank in a breakpoint",
}


def _dead(suspect: Suspect) -> tuple[Condition, str]:
    name, _, _ = subject(suspect)
    death = suspect.death
    if death is None:
        return "dead", f"{name} died{waiters(suspect)}"
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
        how = "ended" if death.code is None else f"exited with code {death.code}{at}"
    elif death.how == "evicted":
        how = f"was evicted{by}"
    else:
        how = f"aborted{at}" + (f": {text}" if text else "")
    if death.how in ("signal", "oom", "exit", "evicted") and text:
        how += f" ({text})"
    if _several(suspect):
        how = how.replace("was ", "were ", 1)
    return "dead", f"{name} {how}{step_text(suspect)}{waiters(suspect)}"


def _finished(suspect: Suspect) -> tuple[Condition, str]:
    name, _, _ = subject(suspect)
    at, death = full_call(suspect, "a call"), suspect.death
    if death is None:
        text = f"{name} {wait(suspect.processes)} in {at}, which "
        if len(suspect.waiting) == 1:
            return "stuck", f"{text}{count(suspect.waiting)} never makes: it has finished"
        others = count(suspect.waiting) if suspect.waiting else "the others"
        return "stuck", f"{text}{others} never make: they have finished"
    step = f" after step {suspect.step}" if suspect.step is not None else ""
    place = place_text(death.site[0]) if death.site else ""
    text = f"{name} ended with exit code 0{step}" + (f", at {place}," if place else "")
    waiting = suspect.waiting
    text += f" while {count(waiting)} {wait(waiting)} in {at}: uneven batches?" if waiting else ""
    return "dead", text


def _mismatch(suspect: Suspect) -> tuple[Condition, str]:
    found = suspect.mismatch
    name, _, _ = subject(suspect)
    if found is None:
        at = full_call(suspect) or "a call"
        before = "what was never issued after the same calls before"
        return "mismatch", f"{name} issued {at}: {before}{waiters(suspect)}"
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
    name, _, _ = subject(suspect)
    use = "use" if _several(suspect) else "uses"
    text = f"{name} {use} {group_text(suspect.group) or 'a group'} from several threads at once"
    each = f" ({', '.join(suspect.threads)})" if suspect.threads else ""
    return "mismatch", f"{text}{each}: their calls meet in no fixed order"


def _cycle(suspect: Suspect) -> tuple[Condition, str]:
    # Other evidence has added its points after those of the circle.
    parts = "; ".join(point.text for point in suspect.support[: max(1, len(suspect.cycle))])
    name, _, _ = subject(suspect)
    wait = "wait" if suspect.certainty else "may wait"
    if suspect.rule == "opposed-messages":
        return "stuck", f"{name} {wait} for each other: {parts}{waiters(suspect)}"
    return "stuck", f"{name} {wait} for each other in a circle: {parts}"


def _outside(suspect: Suspect) -> tuple[Condition, str]:
    place = place_text(suspect.leaf)
    text = "no rank waits in a call: a stall, if there is one, is in code that is no collective"
    if suspect.processes and place:
        name, be, _ = subject(suspect)
        doing = _DOING.get(suspect.leaf_class, "stands")
        return "stuck", f"no rank waits in a call; {name} {be} in {place}: it {doing}"
    if suspect.rule == "no-recorded-call":
        text = (
            "no rank waits in a call that is recorded: a stall, if there is one, is in a send or"
            " receive over gloo, or in code that is no collective"
        )
    return "unknown", text


def _moving(suspect: Suspect) -> tuple[Condition, str]:
    name, be, _ = subject(suspect)
    be = be if suspect.certainty else "may be"
    return "slow", f"{name} {be} slow, but moves{_in_leaf(suspect)}{waiters(suspect)}"


def _unreachable(suspect: Suspect) -> tuple[Condition, str]:
    verb = "answer" if _several(suspect) else "answers"
    return stuck(suspect, f"{verb} nobody: stopped, dead, or cut off from the network")


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
    name, _, _ = subject(suspect)
    return "broken", f"{name} {_have(suspect)} a fault: {place}{text}{waiters(suspect)}"


def _settings(suspect: Suspect) -> tuple[Condition, str]:
    told = dict.fromkeys(trouble.text for trouble in suspect.trouble)
    text = "; ".join(told) or "other settings than the others"
    if "Duplicate GPU" in text:
        return "unknown", f"processes share one GPU: {text}"
    if not suspect.processes:
        return "unknown", f"ranks differ in their settings: {text}"
    name, _, _ = subject(suspect)
    return "different", f"{name} {_have(suspect)} {text}"


def _application(suspect: Suspect) -> tuple[Condition, str]:
    trouble = suspect.trouble[0] if suspect.trouble else None
    device, host = (trouble.device, trouble.host) if trouble else (None, None)
    place = " of ".join(part for part in (device, host) if part) or "a GPU"
    text = trouble.text.strip()[:300] if trouble else "an error"
    name, _, _ = subject(suspect)
    whose = f"an error of the program of {name}" if suspect.processes else "an error of a program"
    return "suspicious", f"{place} reports {text}: {whose}, not of the GPU"


def _unknown(suspect: Suspect) -> tuple[Condition, str]:
    if text := _OF_RULES.get(suspect.rule):
        return "unknown", text(suspect)
    if not suspect.waiting:
        what = suspect.support[0].text if suspect.support else "something went wrong"
        return "unknown", f"{what}, and {_NOT_TOLD} which rank began it"
    where = f" in {at}" if (at := full_call(suspect)) else ""
    there = [p for p in suspect.waiting if not suspect.there or p in suspect.there]
    elsewhere = [p for p in suspect.waiting if p not in there]
    where += f", {count(elsewhere)} in other calls" if elsewhere else ""
    return "unknown", f"{count(there)} {wait(there)}{where}, and {_NOT_TOLD} for whom"


def _different_calls(suspect: Suspect) -> str:
    first, *others = (point.text for point in suspect.support[:_MOST_CALLS])
    text = "; ".join([*others, first])
    return f"{text}: not the same call, and {_NOT_TOLD} who waits for whom"


def _lost_peers(suspect: Suspect) -> str:
    verb = "connections" if len(suspect.waiting) > 1 else "a connection"
    who_ = count(suspect.waiting) if suspect.waiting else "a process"
    return f"{who_} lost {verb}, and {_NOT_TOLD} who ended first"


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
    if name.startswith("Ctrl-C"):
        return f"{name} ended the job{at}: nobody is to blame"
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


def _hub(condition: Condition, text: str, **of_rules: str) -> Says:
    """Returns what makes a sentence of a text with places in braces. of_rules: of single rules."""

    def says(suspect: Suspect) -> tuple[Condition, str]:
        name = suspect.who or who(suspect.processes)
        several, death, waiting = name.is_or_are == "are", suspect.death, suspect.waiting
        return condition, of_rules.get(suspect.rule.replace("-", "_"), text).format(
            name=name, be=name.is_or_are, have="have" if several else "has",
            them="them" if several else "it", its="their" if several else "its",
            host=(suspect.processes and suspect.processes[0].host) or name,
            first=suspect.support[0].text if suspect.support else "nothing says more",
            raised=death.text[:300] if death else "the same",
            waits=f"{count(waiting)} {wait(waiting)}" if waiting else "all ranks wait",
            stage=step_text(suspect), waiters=waiters(suspect),
        )  # fmt: skip

    return says


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}" if number else "a signal"


# fmt: off
PAUSED = Cause("paused", "purpose", None, "waits on purpose: at a breakpoint, or for a rank in one")
DEAD = Cause("dead", "end", _dead,
             "died first: exception, signal, exit, out of memory; or a worker that it started did")
FINISHED = Cause("finished", "end", _finished,
                 "ended with exit code 0, while others wait in a call that it never makes")
HOST_STOPPED = Cause("host-stopped", "held", _host_stopped,
                     "was stopped: SIGSTOP, a debugger, a frozen container")
DEVICE = Cause("device", "device", _device, "has a fault of its GPU, link or host")
GPU_STOPPED = Cause("gpu-stopped", "held", _gpu_stopped,
                    "has a GPU that completes nothing, while its host issues more")
UNREACHABLE = Cause("unreachable", "held", _unreachable,
                    "answers no watcher: stopped, dead, or its node is cut off")
GIL_HELD = Cause("gil-held", "stack", _gil_held, "has a thread that keeps the GIL")
DEADLOCK = Cause("deadlock", "stack", _deadlock,
                 "has threads that wait for each other's locks: both places are named")
HOST_STUCK = Cause("host-stuck", "stack", _host_stuck,
                   "stands in code that is no collective, which is named")
INFINITE_LOOP = Cause("infinite-loop", "stack", _infinite_loop,
                      "runs, and does not come to the next call")
MOVING = Cause("moving", "stack", _moving, "moves, but slowly")
SHARED_GROUP = Cause("shared-group", "others", _shared_group,
                     "uses one group from several threads at once: its calls meet in no fixed "
                     "order")
MISMATCH = Cause("mismatch", "others", _mismatch, "issued another call than the others")
CYCLE = Cause("cycle", "others", _cycle, "is one of a circle that wait for each other")
NOT_ENTERED = Cause("not-entered", "call", _not_entered,
                    "has not issued the call in which the others wait")
INSIDE_CALL = Cause("inside-call", "call", _inside_call,
                    "is in the call, and nobody else is behind")
NOT_ENTERED_OR_INSIDE = Cause("not-entered-or-inside", "call", _entered_or_inside,
                              "one of the two: only counters were there")
NODE_LOST = Cause(
    "node-lost", "hub",
    _hub("dead", "{name} {be} dead: all of {its} processes ended{stage}{waiters}"),
    "is a node of which all processes ended")
LINK_CUT = Cause(
    "link-cut", "hub",
    _hub("broken",
         "{name} {be} broken: no word from {them}, stopped or cut off the network{stage}{waiters}",
         own_link="{host} lost all other nodes at once: its own network is cut{stage}"),
    "is a node that fell silent: it stopped, or its network is cut")
LOST_EACH_OTHER = Cause(
    "lost-each-other", "hub",
    _hub("broken", "{host} and the host of rank 0 lost each other{stage}; both live"),
    "is a node that lives, and lost the host of rank 0")
GUARD_LOST = Cause(
    "guard-lost", "hub",
    _hub("broken", "{name} {be} broken: {its} guard was lost{stage}{waiters}"),
    "has no guard any more, while others of its node speak")
NEVER_JOINED = Cause(
    "never-joined", "hub",
    _hub("missing", "{name} {have} never joined: no process of {them} has reached rank 0{waiters}",
         launcher_ended_it="{name} never joined: {its} launcher ended the job{stage}, as it does"
         " when a rank dies: {first}"),
    "never reached rank 0, or its launcher ended it before that")
UNREACHABLE_ROOT = Cause(
    "unreachable-root", "hub",
    _hub("broken", "{name} {be} broken: no way to rank 0{stage}: {first}"),
    "cannot reach the port of rank 0")
SETTINGS = Cause("settings", "device", _settings, "has other settings than the other ranks")
APPLICATION = Cause("application", "device", _application,
                    "ran a program that made an error on its GPU; the GPU is sound")
LAUNCHER_GONE = Cause(
    "launcher-gone", "hub", _hub("unknown", "{first}; no rank is at fault"),
    "nobody is named: a launcher ended, and with it the job")
NO_ADDRESS = Cause(
    "no-address", "hub",
    _hub("unknown", "no rank can be named: rank 0's address did not get into torch's store, so that"
         " no rank could join"),
    "nobody is named: the address of rank 0 was not published")
ALL_RAISED = Cause(
    "all-raised", "hub", _hub("unknown", "all ranks raised {raised}{stage}: no rank is odd"),
    "nobody is named: all ranks raised the same")
ALL_WAIT = Cause(
    "all-wait", "hub", _hub("unknown", "no rank can be named: {waits} for each other{stage}"),
    "nobody is named: the ranks wait for each other, and none is behind")
OUTSIDE = Cause("outside", "nobody", _outside, "nobody is named: no rank waits in a call")
UNKNOWN = Cause("unknown", "nobody", _unknown, "nobody is named: what was read does not tell")
# fmt: on
TABLE = {row.name: row for row in list(globals().values()) if isinstance(row, Cause)}
"""All causes by name, in their order."""

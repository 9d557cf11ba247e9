"""The table of causes: all that triage can say of a rank, when it fits, and its sentence.

They are in the order of how surely they explain a rank that is absent. docs/triage.md says what
each means.
"""

import re
import time
from collections.abc import Callable
from dataclasses import replace

from oddrank.finding import Condition, Who, ranks_text
from oddrank.triage import timeline
from oddrank.triage.facts import Death, Process, Source, Trouble
from oddrank.triage.suspects import Cause, Says, Suspect
from oddrank.triage.view import View
from oddrank.triage.words import (
    apart,
    call_text,
    count,
    full_call,
    group_text,
    issued,
    own_place,
    place_text,
    places_text,
    step_text,
    wait,
    waiters,
    who,
)

# Class of a leaf -> what a host does that stands there.
DOING = {
    "data": "[waits|wait] for data",
    "queue": "[waits|wait] for a queue",
    "gpu": "[waits|wait] for [its GPU|their GPUs]",
    "disk": "[waits|wait] for a file",
    "file-lock": "[waits|wait] for the lock of a file",
    "pipe": "[waits|wait] for a pipe",
    "child": "[waits|wait] for a child process",
    "lock": "[waits|wait] for a lock",
    "threads": "[waits|wait] for another thread",
    "network": "[waits|wait] for the network",
    "peers": "[waits|wait] for other ranks",
    "running": "[runs|run]",
    "leaving": "[has|have] left the training",
}
# Words of what `oddrank run` said, and what they tell.
_TOLD: dict[str, Condition] = {
    " stuck": "stuck", " circle": "stuck", " slow": "slow", " issued": "mismatch",
    " broken": "broken", " fault": "broken", " joined": "missing",
}  # fmt: skip
_MOST_CALLS = 4  # that a sentence names
# Seconds since the last event of a process that goes on. Recorders see each line of its own code.
JUST_NOW = 1.0
_LONGER = 2.0  # so many times as long between two calls as ever before is no pause any more
_CHOICE = re.compile(r"\[([^]|]*)\|([^]]*)\]")
_SIZES = re.compile(r"(\d+) vs\.? (\d+)")
_CONNECT = re.compile(r"connect to [(\[]*([\w.:-]+?)\]?(?::|, )(\d+)")
_NOT_TOLD = "what was read does not tell"
_NOTHING = "nothing in what was read tells of a stall or a death"
# Stand-ins for a suspect without a death or a fault, for its sentence.
_SOME_END = Death(Process(), "exit", Source(""))
_SOME_FAULT = Trouble("", "an error of which no more is known", Source(""))


def words_for(text: str, *, is_one: bool) -> str:
    """Returns a text with the words of its [one|several]."""
    return _CHOICE.sub(r"\1" if is_one else r"\2", text)


def _name(suspect: Suspect) -> Who:
    return suspect.who or who(suspect.processes)


def _is_one(suspect: Suspect) -> bool:
    if suspect.who is not None:
        return suspect.who.is_or_are == "is"
    return len(suspect.processes) < 2


def _said(suspect: Suspect) -> list[str]:
    return [point.text for point in suspect.support] or ["nothing says more"]


def _filled(text: str, suspect: Suspect) -> str:
    """Returns a row's text with its braces filled, and with the fitting word of [one|several]."""
    is_one = _is_one(suspect)
    text = words_for(text, is_one=is_one)
    name, waiting, death = _name(suspect), suspect.waiting, suspect.death
    be, at = "is" if is_one else "are", full_call(suspect)
    places = places_text((suspect.leaf, *suspect.beside))
    place = place_text(suspect.leaf) if len(suspect.processes) < 2 else places
    waits = f"{count(waiting)} {wait(waiting)}" if waiting else ""
    return text.format(
        name=name, be=be, may_be=be if suspect.certainty else "may be",
        host=(suspect.processes and suspect.processes[0].host) or name,
        may="" if suspect.certainty else "may ", first=_said(suspect)[0],
        # The circle's points come first: other evidence has added its own behind them.
        circle="; ".join(_said(suspect)[: max(1, len(suspect.cycle))]),
        raised=death.text[:300] if death else "the same",
        waits=waits or "others wait", all_wait=waits or "all ranks wait",
        call=call_text(suspect.at) or "the call", own=call_text(suspect.own),
        others=count(waiting) if waiting else "the others",
        at=at or "the call that the others are in", group=group_text(suspect.group) or "a group",
        in_leaf=f" in {place}" if place else "", at_leaf=f" at {place}" if place else "",
        unseen="" if place else " (a stack would tell)",
        in_all=f", in {places}" if places else "",
        worker=place_text(suspect.beside[0]) if suspect.beside else "",
        threads=f" ({', '.join(suspect.threads)})" if suspect.threads else "",
        step=step_text(suspect), waiters=waiters(suspect),
        there=waiters(suspect, "there" if at else ""),
    )  # fmt: skip


def _text(condition: Condition, text: str, **of_rules: str) -> Says:
    """Returns what makes a sentence of a row's text. of_rules: of single rules."""

    def says(suspect: Suspect) -> tuple[Condition, str]:
        return condition, _filled(of_rules.get(suspect.rule.replace("-", "_"), text), suspect)

    return says


def _stuck(how: str, waiters: str = "{waiters}") -> Says:
    place = "" if "{in_" in how or "{worker}" in how else "{at_leaf}"
    return _text("stuck", f"{{name}} {{may_be}} stuck{place}: {how}{{step}}{waiters}")


_INSIDE = _stuck("inside {call}, or in one before it, and nobody else is behind")
_INSIDE_OLDER = _stuck(
    "inside {own} of {group}, which the others have completed; {name} [has|have] not entered"
    " {call}",
    "{there}",
)
_ENTERED_OR_INSIDE = _stuck("[it has|they have] not entered {call}, or {be} inside it{unseen}")
_MAYBE_AWAITED = _text(
    "unknown",
    "{waits} in {call}, and {name} left no word of it: whether they wait for [it|them] can't be"
    " told",
    init_not_begun="{waits} in {call}, and {name} printed no line of it: whether it was not"
    " reached or not logged can't be told",
    counts_behind="{name} {be} behind {others} in {call}, as in healthy jobs, too: only counts"
    " that stand still tell",
)


def _inside_call(suspect: Suspect) -> tuple[Condition, str]:
    own, at = suspect.own, suspect.at
    return (_INSIDE_OLDER if own and at and own.seq != at.seq else _INSIDE)(suspect)


def _host_stuck(suspect: Suspect) -> tuple[Condition, str]:
    doing = DOING.get(suspect.leaf_class, "[stands|stand]")
    if suspect.rule == "held" and not suspect.leaf_class:
        doing = "inside the kernel (state D)"
    if suspect.beside and len(suspect.processes) == 1:
        stands = "is stopped" if suspect.held else "stands"
        return _stuck(f"waits for its DataLoader worker, which {stands} in {{worker}}")(suspect)
    if suspect.leaf_class not in DOING and place_text(suspect.leaf):
        return _text("stuck", "{name} {may_be} stuck{in_leaf}{step}{waiters}")(suspect)
    return _stuck(doing + "{in_leaf}")(suspect)


def _dead(suspect: Suspect) -> tuple[Condition, str]:
    death = suspect.death or _SOME_END
    name = str(_name(suspect)) + (f"'s {death.child}" if death.child else "")
    place = own_place(death.site, next(iter(death.site), suspect.leaf))
    comma = "," if death.how == "exception" and ": " in timeline.said(death) else ""
    at = f"{comma} {'near' if death.sampled else 'at'} {place}" if place else ""
    how = timeline.death_text(death, at, several=not _is_one(suspect))
    return "dead", f"{name} {how}{step_text(suspect)}{waiters(suspect)}"


def _finished(suspect: Suspect) -> tuple[Condition, str]:
    name, waiting = _name(suspect), suspect.waiting
    at, death = full_call(suspect, "a call"), suspect.death
    if death is None:
        others = count(waiting) if waiting else "the others"
        ends = "makes: it has" if len(waiting) == 1 else "make: they have"
        text = f"{name} {wait(suspect.processes)} in {at}, which {others} never {ends} finished"
        if suspect.rule == "leaves-a-group":
            leave = "leaves" if len(waiting) == 1 else "leave"
            text = f"{name} {wait(suspect.processes)} in {at}, while {others} {leave} a group"
        return "stuck", text
    early = " before it joined the group" if suspect.rule == "finished-early" else ""
    when = f" after step {suspect.step}" if suspect.step is not None else early
    place = own_place(death.site, next(iter(death.site), suspect.leaf))
    # Whether its process lives, and is not only on the way to its end.
    lives = death.went_on and suspect.leaf and (suspect.rests or 0.0) >= JUST_NOW
    lives = lives or death.code is None
    stands, leaves = ("stands", "leaves") if _is_one(suspect) else ("stand", "leave")
    ends = "finished" if lives else "ended with exit code 0"
    text = f"{name} {f'{leaves} a group' if death.text else ends}{when}"
    text += f", {f'and {stands} ' if lives and not death.text else ''}at {place}," if place else ""
    text += f" while {count(waiting)} {wait(waiting)} in {at}" if waiting else ""
    text += "" if early or not waiting or death.text else ": uneven batches?"
    return "stuck" if lives else "dead", text


def _mismatch(suspect: Suspect) -> tuple[Condition, str]:
    found = suspect.mismatch
    name = _name(suspect)
    if found is None:
        at = full_call(suspect) or "a call"
        never = "which never came after the same calls before"
        return "mismatch", f"{name} issued {at}, {never}{waiters(suspect)}"
    usual, *others = found.variants
    of = group_text(suspect.group or found.group)
    where = f" as call {found.seq}" + (f" of {of}" if of else "") if found.seq else ""
    odd = "; ".join(f"{ranks_text(v.ranks)} issued {issued(v.call, found.differs)}" for v in others)
    rest = f"{ranks_text(usual.ranks)} issued {issued(usual.call, found.differs)}"
    text = f"{odd}{where}; {rest}"
    if found.differs == "order":
        text += ": the same calls, in another order"
    return "mismatch", text


def _device(suspect: Suspect) -> tuple[Condition, str]:
    trouble = next(iter(suspect.trouble), _SOME_FAULT)
    text, device = trouble.text.strip()[:300], trouble.device
    text += f" ({trouble.count} times)" if trouble.count > 1 else ""
    if not suspect.processes:
        host = f"node {trouble.host}" if trouble.host else None
        name = " of ".join(filter(None, (device, host))) or "a host"
        return "broken", f"{name} has a fault: {text}"
    place = f"{device}: " if device and device not in text else ""
    has = "has" if _is_one(suspect) else "have"
    return "broken", f"{_name(suspect)} {has} a fault: {place}{text}{waiters(suspect)}"


def _settings(suspect: Suspect) -> tuple[Condition, str]:
    text = "; ".join(dict.fromkeys(each.text for each in suspect.trouble)) or "other settings"
    if "Duplicate GPU" in text:
        return "unknown", f"processes share one GPU: {text}"
    if not suspect.processes:
        return "unknown", f"ranks differ in their settings: {text}"
    return "different", f"{_name(suspect)} {'has' if _is_one(suspect) else 'have'} {text}"


def _application(suspect: Suspect) -> tuple[Condition, str]:
    trouble = next(iter(suspect.trouble), _SOME_FAULT)
    place = " of ".join(part for part in (trouble.device, trouble.host) if part) or "a GPU"
    of = f"the program of {_name(suspect)}" if suspect.processes else "a program"
    text = f"{place} reports {trouble.text.strip()[:300]}: an error of {of}, not of the GPU"
    return "suspicious", text


def _unknown(suspect: Suspect) -> tuple[Condition, str]:
    if text := _OF_RULES.get(suspect.rule):
        return "unknown", text(suspect)
    if not suspect.waiting:
        what = suspect.support[0].text if suspect.support else "something went wrong"
        return "unknown", f"{what}, and {_NOT_TOLD} which rank began it"
    there, elsewhere = apart(suspect)
    where = f" in {at}" if (at := full_call(suspect)) else ""
    where += f", {count(elsewhere)} in other calls" if elsewhere else ""
    return "unknown", f"{count(there)} {wait(there)}{where}, and {_NOT_TOLD} for whom"


def _not_understood(suspect: Suspect) -> str:
    *loud, understood = _said(suspect)
    if not loud and understood.endswith(" 0 of 0 lines"):
        return f"{_NOTHING}, and nothing shows that ranks moved or ended well"
    first = f"the first that tells of trouble: {loud[0]}" if loud else "none tells of an end"
    return f"{understood}, and {_NOT_TOLD} what happened; {first}"


def _told_to_end(suspect: Suspect) -> str:
    death = suspect.death or _SOME_END
    name = death.process.label or "a launcher"
    clock = " at %H:%M:%S" if death.wall else " at %H:%M:%S UTC"
    at = "" if death.time is None else time.strftime(clock, time.gmtime(death.time))
    if name.startswith("Ctrl-C"):
        return f"{name} ended the job{at}: nobody is to blame"
    if death.text:
        why = f"at its {death.text}" if death.text.endswith(" limit") else f"({death.text})"
        return f"{name} ended the job{at} {why}: nobody is to blame for that, and {_NOT_TOLD} more"
    if death.signal is None:
        return f"{name} cancelled the job{at}; its log does not say why"
    by = timeline.signal_name(death.signal)
    return f"{name} was told to end ({by}){at}; its log does not say why"


def _told(suspect: Suspect) -> tuple[Condition, str]:
    text = (suspect.death and suspect.death.text) or _said(suspect)[0]
    found = (how for word, how in _TOLD.items() if word in text.partition(";")[0])
    return next(found, "dead"), text


def _sizes_differ(suspect: Suspect) -> str:
    death = suspect.death or _SOME_END
    name = who([death.process]) if death.process.key else "a process"
    if "mismatch between collectives" in death.text:
        return f"{name} noticed that ranks issued different calls, and {_NOT_TOLD} whose is wrong"
    sizes = _SIZES.search(death.text)
    what = f"{sizes[1]} bytes where it expected {sizes[2]}" if sizes else "more than it expected"
    return f"{name} was sent {what}, and ended: its size or its peer's is wrong, or their calls are"


def _lost_peers(suspect: Suspect) -> str:
    name = count(suspect.waiting) if suspect.waiting else "a process"
    if to := _CONNECT.search(_said(suspect)[0]):
        return f"{name} could not connect to {to[1]}:{to[2]}, and {_NOT_TOLD} why"
    return f"{name} lost a peer, and {_NOT_TOLD} who ended first"


_OF_RULES: dict[str, Callable[[Suspect], str]] = {
    "told-to-end": _told_to_end,
    "sizes-differ": _sizes_differ,
    "stacks-different-calls": lambda suspect: (
        "; ".join([*_said(suspect)[1:_MOST_CALLS], _said(suspect)[0]])
        + f": not the same call, and {_NOT_TOLD} who waits for whom"
    ),
    "lost-peers": _lost_peers,
    "not-understood": _not_understood,
    "never-came": lambda suspect: _said(suspect)[0],
    "of-any-job": lambda s: f"{_said(s)[0]}; {_NOT_TOLD} which were of the job",
}


# When a row fits a suspect of a later one: returns what that is then, or None.


def _has_finished(suspect: Suspect, view: View) -> Suspect | None:
    """Ranks that have finished are missing; if few wait for most, the few are odd.

    If all others wait in calls without a number, they wait for the ranks that have finished.
    """
    gone = tuple(view.finished)
    if suspect.rule == "stacks-all-wait" and len(suspect.waiting) + len(gone) == view.world:
        suspect = replace(suspect, cause=NOT_ENTERED, processes=gone, certainty=1)
    ends = [view.done.get(process) for process in suspect.processes]
    about, waits = suspect.cause.about, not suspect.rule.startswith("last-to-")
    if about not in ("call", "stack") or not waits or not ends or None in ends:
        return None
    begins = suspect.at is not None and suspect.at.op == "init_process_group"
    leaves = any(end.text for end in ends if end)
    rule = "leaves-a-group" if leaves else "finished-early" if begins else "finished"
    told = replace(suspect, rule=rule)
    if suspect.rule == "stacks-awaited" and all(end.code == 0 for end in ends if end):
        told = replace(told, certainty=max(told.certainty, 1), against=())  # one look is enough
    if 0 < len(suspect.waiting) < len(ends):
        return replace(told, processes=suspect.waiting, waiting=suspect.processes, leaf=None)
    return replace(told, death=ends[0])


def _goes_on(suspect: Suspect, view: View) -> Suspect | None:
    return suspect if suspect.rests is not None and suspect.rests < JUST_NOW else None


def _goes_on_slowly(suspect: Suspect, view: View) -> Suspect | None:
    """From one look, slow work and an endless loop are the same: both run."""
    active = (view.activities[p] for p in suspect.processes if p in view.activities)
    slow = suspect.leaf_class in ("disk", "data", "network") or suspect.young
    # It has not been out of calls much longer than it was before.
    slow = slow or suspect.rule.startswith("last-to-") or all(
        a.seen is not None and a.seen - (a.alone or 0.0) < _LONGER * (a.pause or 0.0)
        for a in active
    )  # fmt: skip
    return _goes_on(suspect, view) if slow else None


def _holds_its_own_locks(suspect: Suspect, view: View) -> Suspect | None:
    locked = [s.locked for s in view.stands[0] if s.process in suspect.processes]
    if suspect.cause.about not in ("call", "stack") or len(locked) != 1 or not locked[0]:
        return None
    return replace(suspect, beside=locked[0])


def _shares_its_group(suspect: Suspect, view: View) -> Suspect | None:
    """Threads that use one group at once explain every difference and every wait in it."""
    members = view.progress.get(suspect.group, {}) if suspect.group is not None else {}
    if not (shared := [p for _, p in sorted(members.items()) if len(p.threads) > 1]):
        return None
    own = tuple(p.process for p in shared)
    return replace(
        suspect, processes=own, waiting=tuple(p for p in suspect.waiting if p not in own),
        rule="threads-share-a-group", certainty=2, threads=shared[0].threads, against=(),
    )  # fmt: skip


# fmt: off
PAUSED = Cause("paused", "purpose", None)
DEAD = Cause("dead", "end", _dead)
EACH_RAISED = Cause("each-raised", "end",
    _text("unknown", "each rank raised an error of its own: {first}; no rank is odd"))
FINISHED = Cause("finished", "end", _finished,
    ("compare len(dataloader) on all ranks; DistributedSampler(drop_last=True), or torch's Join",),
    _has_finished)
HOST_STOPPED = Cause("host-stopped", "held",
    _stuck("stopped by a signal, a debugger or a frozen container"),
    ("grep -e State -e TracerPid /proc/{pid}/status  (on {host}); kill -CONT {pid} wakes it",))
DEVICE = Cause("device", "device", _device, drains_node=lambda suspect: any(
    trouble.fatal and trouble.whose == "hardware" for trouble in suspect.trouble))
GPU_STOPPED = Cause("gpu-stopped", "held",
    _stuck("[its host issues|their hosts issue] more calls, but [its GPU completes|their GPUs"
           " complete] none"), drains_node=lambda suspect: True)
UNREACHABLE = Cause("unreachable", "held",
    _stuck("[answers|answer] nobody: stopped, dead, or cut off from the network"),
    ("ps -o pid,stat,wchan,etime -p {pid}  (on {host}; T: stopped, D: in the kernel)",),
    drains_node=lambda suspect: True)
GIL_HELD = Cause("gil-held", "stack",
    _stuck("one thread keeps the GIL{in_leaf}, and no other Python code can run"),
    ("pystack remote {pid} --native-all  (on {host}; it says which thread holds the GIL) "
     " [pystack 1.0+]",))
MOVING = Cause("moving", "stack",
    _text("slow", "{name} {may_be} slow, but moves{in_leaf}{waiters}"), fits=_goes_on_slowly)
DEADLOCK = Cause("deadlock", "stack",
    _stuck("[its|their] threads wait for each other's locks{in_all}"),
    ("take these locks in one order in all threads, or guard both places by one lock",),
    _holds_its_own_locks)
INFINITE_LOOP = Cause("infinite-loop", "stack",
    _stuck("[runs|run] on{in_leaf} and [does|do] not come to the next call"), fits=_goes_on)
HOST_STUCK = Cause("host-stuck", "stack", _host_stuck,
    fits=lambda s, view: s if s.cause.name == "not-entered" and s.leaf else None,
    drains_node=lambda suspect: suspect.rule == "held")
SHARED_GROUP = Cause("shared-group", "others",
    _text("mismatch", "{name} [uses|use] {group} from several threads at once{threads}: their"
          " calls meet in no fixed order"),
    ("give each thread a group of its own: torch.distributed.new_group(), on all ranks",),
    _shares_its_group)
MISMATCH = Cause("mismatch", "others", _mismatch)
CYCLE = Cause("cycle", "others",
    _text("stuck", "{name} {may}wait for each other in a circle: {circle}",
          opposed_messages="{name} {may}wait for each other: {circle}{waiters}"),
    ("issue these calls in one order on all ranks; messages both ways: batch_isend_irecv()",))
NOT_ENTERED = Cause("not-entered", "call", _stuck("[it has|they have] not entered {at}", "{there}"))
INSIDE_CALL = Cause("inside-call", "call", _inside_call)
NOT_ENTERED_OR_INSIDE = Cause("not-entered-or-inside", "call",
    lambda suspect: (_ENTERED_OR_INSIDE if suspect.certainty else _MAYBE_AWAITED)(suspect))
NODE_LOST = Cause("node-lost", "hub",
    _text("dead", "{name} {be} dead: all of [its|their] processes ended{step}{waiters}"),
    ("ping {host}",), drains_node=lambda suspect: True)
LINK_CUT = Cause("link-cut", "hub",
    _text("broken", "{name} {be} broken: no word from [it|them], stopped or cut off the"
          " network{step}{waiters}",
          own_link="{host} lost all other nodes at once: its own network is cut{step}"),
    ("ping {host}; ip -s link  (there)",), drains_node=lambda suspect: True)
LOST_EACH_OTHER = Cause("lost-each-other", "hub",
    _text("broken", "{host} and the host of rank 0 lost each other{step}; both live"),
    ("do large packets pass? ping -c 3 -M do -s 1472 {home}  (on {host})",
     "are packets lost? nstat -az TcpRetransSegs; ping -c 100 -i 0.2 {home}  (on {host})"))
GUARD_LOST = Cause("guard-lost", "hub",
    _text("broken", "{name} {be} broken: [its|their] guard was lost{step}{waiters}"),
    ("dmesg -T | grep -i 'killed process'  (on {host})",))
NEVER_JOINED = Cause("never-joined", "hub",
    _text("missing", "{name} [has|have] never joined: no process of [it|them] has reached rank"
          " 0{waiters}",
          launcher_ended_it="{name} never joined: [its|their] launcher ended the job{step}, as it"
          " does when a rank dies: {first}"))
UNREACHABLE_ROOT = Cause("unreachable-root", "hub",
    _text("broken", "{name} {be} broken: no way to rank 0{step}: {first}"),
    ("look for a firewall on {home}: nft list ruleset; iptables -L",
     "or open one port, and on every host:"
     " export ODDRANK_CONTROL_ADDR=IP_OF_RANK_0:PORT#ANY_SECRET_WORD"))
SETTINGS = Cause("settings", "device", _settings,
    ("tr '\\0' '\\n' < /proc/{pid}/environ | grep -e NCCL_ -e RANK -e WORLD_SIZE  (on {host};"
     " compare it with another rank's)",))
APPLICATION = Cause("application", "device", _application)
TOLD = Cause("told", "end", _told, ("on {host}, while its records are there: oddrank triage",))
LAUNCHER_GONE = Cause("launcher-gone", "hub", _text("unknown", "{first}; no rank is at fault"),
    ("dmesg -T | grep -i 'killed process'; last -x | head  (on {launchers})",))
NO_ADDRESS = Cause("no-address", "hub",
    _text("unknown", "no rank can be named: rank 0's address did not get into torch's store, so"
          " that no rank could join"),
    ("time python -c 'import torch'  (on rank 0's host)", "again with a longer --deadline"))
ALL_RAISED = Cause("all-raised", "hub",
    _text("unknown", "all ranks raised {raised}{step}: no rank is odd"),
    ("leave out what this stage measures, or report it with this output",))
ALL_WAIT = Cause("all-wait", "hub",
    _text("unknown", "no rank can be named: {all_wait} for each other{step}"),
    ("if this stage only takes long: give it a longer --deadline",
     "run again; if it hangs again, test the network between the nodes"))
OUTSIDE = Cause("outside", "nobody",
    _text("unknown", "no rank waits in a call: a stall, if there is one, is in code that is no"
          " collective",
          no_recorded_call="no rank waits in a call that is recorded: a stall, if there is one, is"
          " in a send or receive over gloo, or in code that is no collective"))
UNKNOWN = Cause("unknown", "nobody", _unknown)
# fmt: on
TABLE = {row.name: row for row in list(globals().values()) if isinstance(row, Cause)}
"""All causes by name, in their order."""

# Rule of a judge or of a row -> why its suspect is one, as reports say it.
RULES = {
    "first-end": "no other end is known to have come before",
    "ended-from-outside": "somebody or something ended all ranks, and no other evidence says why",
    "told-to-end": "what ends a job from outside says nothing of its ranks",
    "told-by-run": "oddrank run watched the job, and named it",
    "leaves-a-group": "the others wait in a call that it does not make: it leaves a group",
    "finished": "the others wait in a call that it never makes: it has finished",
    "finished-early": "the others wait for it to join the group, and it has finished",
    "of-any-job": "a node's log tells of all jobs' processes, and no rank of the job is known",
    "each-raised": "each raised another error, all of them within a second",
    "last-to-leave": "all other ranks leave a group, and it stands still",
    "last-to-end": "all other ranks have finished, and it stands still",
    "same-end-everywhere": "every rank ended by the same: the code is odd, no rank",
    "did-not-end": "the launcher had to kill it, while the others timed out waiting",
    "gone-without-a-word": "all others lost a peer, and nothing says how it ended",
    "absent-in-store": "the others timed out waiting for its key in the store",
    "without-a-timeout": "the others timed out waiting for somebody, and it did not",
    "timed-out": "calls timed out, and nothing that was read says who did not come to them",
    "lost-peers": "ranks lost connections, and nothing that was read says who ended first",
    "lost-one-connection": "it lost a connection, and no other rank ended before it",
    "sizes-differ": "a rank was sent more than it expected: its size or its peer's is wrong",
    "awaited-and-waits-for-nobody": "awaited by other ranks, and waiting for none",
    "awaited-and-silent": "other ranks wait in calls with it, and it left no word of them",
    "not-understood": "no line that is known tells of an end, of a wait, or of ranks that moved on",
    "never-came": "the store counts the processes that came to it",
    "all-inside": "every rank is inside the call: nobody is behind",
    "sent-and-lost": "each rank waits for what others have sent: a link may lose packets",
    "group-unknown": "nothing that was read tells who belongs to the group",
    "circle": "ranks wait for each other, each inside a call that the next has not entered",
    "in-every-circle": "ranks wait for each other in circles, and all of these pass through it",
    "unusual-call": "it issued another call than it always did, and all others did as always",
    "opposed-messages": "two ranks do the same to each other, and each needs the other's part",
    "different-calls": "ranks issued different calls as the same call of a group",
    "different-ways": "it issued another call than most did after the last that all have ended",
    "threads-share-a-group": "threads of it were in calls of this group at the same time",
    "paused-on-purpose": "a breakpoint makes it wait, as it says itself",
    "held": "the kernel keeps it from running",
    "no-recorded-call": "every rank has completed what is recorded of what it issued",
    "no-open-call": "every rank has completed what it issued",
    "counts-behind": "it has launched fewer operations than the others, and no rank goes on",
    "init-not-begun": "others set up a communicator, and it printed no line of that",
    "counts-mostly-behind": "most ranks have launched fewer operations than the others",
    "counts-equal": "all ranks have launched the same operations, and no rank goes on",
    "fault-of-its-gpu": "a fault of the GPU that this rank uses",
    "fault-of-its-host": "a fault of the host on which these ranks run",
    "other-settings": "NCCL's diagnostics list the settings of all ranks",
    "other-start": "each process says with which RANK and WORLD_SIZE it was started",
    "one-gpu": "NCCL found that two processes of a communicator use one GPU, and says no more",
    "error-of-its-program": "GPUs report such errors where a program goes wrong on them",
    "fault-of-no-known-rank": "nothing that was read says which rank uses this device",
    "stacks-awaited": "others wait for peers, and its stack shows that it waits for none",
    "stacks-awaited-by-gpu": "others wait for their GPUs, and its stack shows that it does not",
    "stacks-gil-held": "a thread of it holds the GIL while others wait for it",
    "stacks-moving": "others wait for peers, and it stood elsewhere in an earlier stack",
    "stacks-no-answer": "all others wrote dumps of themselves and wait, and it wrote none",
    "stacks-all-outside": "the stacks show no rank that waits for peers",
    "stacks-different-calls": "the stacks show only ranks that wait, in different calls",
    "stacks-awaited-still": "others wait for peers, and in each look it stood at the same place",
    "stacks-all-wait": "the stacks show only ranks that wait",
    "guard-saw-it": "its guard saw it",
    "behind": "it is behind and waits for no rank; slow looks the same",
    "left-alone": "it alone left the collective, and nothing else explains why",
    "guards-saw-it": "the guards saw it",
    "all-guards-lost": "every guard of the node was lost, and no other",
    "own-link": "the link of this host is the one that all others share with it",
    "two-nodes": "two nodes lost each other: either may be the cause",
    "either-host": "either host, or the network between them",
    "one-guard-lost": "its node has other guards that speak",
    "others-joined": "it may only be slow to start; a network that is cut would look the same",
    "launcher-ended-it": "it may also have been slow to start, and the job ended",
    "told-in-store": "it said so itself, through torch's store",
    "slow-store": "the store, or a slow import of torch, may be the reason",
    "nobody-behind": "no rank is behind the others without waiting itself",
    "no-answer": "its watcher, NCCL's or oddrank's, gets no answer from it",
}

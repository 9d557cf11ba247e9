"""Finds the first cause among the ends of processes. Folds ends that follow from another's.

Only a process that ended by itself is a cause (ends.py tells the others). A launcher's "root cause"
is the exit that it saw first, often a victim's. A process that finds another size than it expects
shows a mismatch, but not which rank's size is wrong.
"""

import re
import signal
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from oddrank.finding import counted, grouped
from oddrank.triage import causes, timeline
from oddrank.triage.facts import Call, Death, Process, Stop
from oddrank.triage.judges.ends import (
    FROM_OUTSIDE,
    STOOD,
    End,
    are_most,
    ends_of,
    is_interrupt,
    signature,
)
from oddrank.triage.suspects import Cause, Point, Suspect
from oddrank.triage.view import View
from oddrank.triage.words import count, who

# Signals that end victims, too: an abort after a lost peer, a crash while others tear down.
CASCADES = frozenset({6, 11})
_ALIVE = ("running", "stopped", "uninterruptible")
_MOST_POINTS, _FEW, _MOST_WORDS = 8, 3, 100
_DONE = ("ended with exit code 0", "had finished")
_AT_ONCE = 1.0  # seconds in which ranks that raise have not heard of each other
# Keys of gloo's ranks in the store end with a rank of the group. NCCL's need that of one rank.
_STORE_KEY = re.compile(
    r"wait timeout after \d+ ?ms, keys: /default_pg/\S*//cpu//\d+/(\d+)$"
    r"|ncclUniqueId from \[(\d+)\].*wait timeout after \d+ ?ms, keys: /default_pg/", re.M,
)  # fmt: skip
_JOINED = re.compile(r"(\d+)/(\d+) clients joined|world_size=(\d+),? worker_count=(\d+)")
# If the order of ends is not known, the kind that explains others best comes first.
_ORDER = {"oom": 0, "evicted": 1, "exception": 2, "signal": 2, "abort": 3, "exit": 4}


def judge(view: View) -> list[Suspect]:
    """Returns the first end and its reason; if none ended by itself, the ranks the others awaited.

    A job that was ended from outside has no culprit, unless a process ended before, by itself.
    """
    found = _judge(view)
    left = [s for s in found if s.rule != "ended-from-outside"]
    if named := [stop for stop in view.stops if stop.named]:
        return [*left, _said(named[-1])]
    return [_told(view.stops)] if view.stops and not left else found


def _said(stop: Stop) -> Suspect:
    """Takes the finding of `oddrank run`: it watched the job, and knows more than the files."""
    certainty = 0 if " may " in stop.why.partition(";")[0] else 2
    death = Death(stop.named[0], "exit", stop.source, text=stop.why)
    point = Point(f"oddrank run said: {stop.why}", stop.source)
    return Suspect(causes.TOLD, stop.named, "told-by-run", certainty, (point,), death=death)


def _told(stops: Sequence[Stop]) -> Suspect:
    stop = min(stops, key=lambda s: (not s.why, s.time is None, s.time or 0.0))
    how: Literal["evicted", "signal"] = "signal" if stop.signal else "evicted"
    death = Death(
        Process(label=stop.what), how, stop.source, stop.time, signal=stop.signal,
        by="" if stop.signal else "scheduler", text=stop.why, wall=stop.wall,
    )  # fmt: skip
    text = f"{stop.what} ended the job" + (f": {stop.why}" if stop.why else "")
    if stop.signal:
        text = f"{stop.what} was told to end, by signal {stop.signal}"
    return Suspect(
        causes.UNKNOWN, (), rule="told-to-end", certainty=0, support=(Point(text, stop.source),),
        death=death, time=stop.time,
    )  # fmt: skip


def is_over(view: View) -> bool:
    """Returns whether all ranks had trained to the end before the first of them exited.

    Ray ends its workers by force then, with exit code 1.
    """
    ranks = {process for process in view.activities if process.rank is not None}
    over = {process for process in ranks if view.activities[process].over}
    exited = all(death.how == "exit" and death.process in over for death in view.deaths)
    return exited and 0 < (view.world or 1) <= len(ranks) and ranks == over


def _judge(view: View) -> list[Suspect]:
    if is_over(view):
        return []
    ends = ends_of(view)
    own = [end for end in ends if end.why == "own"
           and not (view.mismatches and "DDP expects same model" in end.best.text)]  # fmt: skip
    ended = [end for end in ends
             if end.why == "ended" and end.best.how == "signal" and not end.best.by]  # fmt: skip
    told = [end for end in ends if end.why == "ended" and is_interrupt(end.best)]
    if not told and are_most(ended, ends, view):
        told, own = ended, []
    if told and not own and not view.stops:
        first = min(told, key=lambda end: (end.best.signal is None, end.time or 0.0))
        best, whose = first.best, first.process
        by, why = "somebody", signal.Signals(best.signal or 2).name
        if is_interrupt(best):
            by = "Ctrl-C"
            if len(told) == 1 and whose.rank is not None and (view.world or 0) > 1:
                by += f", or SIGINT to {who([whose])} alone,"
        return [_told([Stop(by, best.source, best.time, why=why, wall=best.wall)])]
    # A crash among other ends may be theirs: a library that is torn down under a thread.
    early = {end for end in own if not (end.best.among and end.best.signal == 9)
             and (end.best.signal not in CASCADES or end.best.how != "signal")}  # fmt: skip
    own = [end for end in own if end in early or all(end.before(other) for other in early)]
    unlike = [end for end in ends if end.why == "unlike"]
    if not unlike:
        return _causes(view, ends, own) if own else _awaited(view, ends)
    if view.mismatches:  # both calls are known: they are judged themselves
        return []
    # A rank that was sent more than it expected, or its peer, gave another size.
    points = [Point(_words(end), end.best.source) for end in unlike]
    victims = [end for end in ends if end.why in ("waited", "lost")]
    return [_left(causes.UNKNOWN, (), "sizes-differ", points, victims, death=unlike[0].best)]


class _Earliest:
    """Ends by their clocks, the earliest first: of 10,000 not each is compared with each."""

    def __init__(self, ends: Iterable[End]) -> None:
        self._first: dict[object, dict[object, End]] = defaultdict(dict)
        self._told: dict[object, list[End]] = defaultdict(list)
        for end in sorted(ends, key=lambda end: (end.timed and end.timed.time) or 0.0):
            if (death := end.timed) is not None:
                host = end.process.host
                for clock in {host, (bool(host), death.source.file)}:
                    self._first[clock].setdefault((death.coarse, death.wall), end)
            if end.best.how == "exit" or end.best.signal not in FROM_OUTSIDE:
                self._told[end.best.source.file].append(end)

    def before(self, end: End) -> End | None:
        """Returns one of them that came before an end; None if none did."""
        file, host = end.timed and end.timed.source.file, end.process.host
        some = [*self._first[host or (True, file)].values(), *self._first[False, file].values()]
        if end.best.signal in FROM_OUTSIDE:
            some += self._told[end.best.source.file]
        return next((one for one in some if one.before(end)), None)


def _causes(view: View, ends: Sequence[End], own: Sequence[End]) -> list[Suspect]:
    """Returns a suspect for each kind of own end, the first one surest.

    Exits of some ranks that say no more than a code: the first ones are the cause.
    """
    if len(own) > 1 and all(_is_of_any_job(end, view) for end in own):
        last = max(own, key=lambda end: end.time or 0.0)
        text = f"the kernel ended {len(own)} processes, the last of them: {_words(last)}"
        points = [Point(_words(end), end.best.source) for end in own if end is not last]
        points.insert(0, Point(text, last.best.source))
        return [_left(causes.UNKNOWN, (), "of-any-job", points, [])]
    groups = grouped((signature(end.best), end) for end in own)
    if len(groups) == len(own) == view.world != 1 and _is_at_once(own):
        seen = any(death.gone is not None for end in own for death in end.deaths)
        doubt = () if seen else (Point("no guard saw which of them ended first"),)
        told = (f"{count([end.process])} {timeline.said(end.best)}"[:_MOST_WORDS]
                for end in sorted(own, key=lambda end: end.process.rank or 0))  # fmt: skip
        point = Point("; ".join(told), own[0].best.source)
        return [Suspect(
            causes.EACH_RAISED, (), "each-raised", 1 + seen, (point,), doubt, time=own[0].time,
        )]  # fmt: skip
    for of, group in groups.items():
        if _is_bare(group[0].best) and not _everywhere(view, ends, group):
            of_code = _Earliest(group)
            groups[of] = [end for end in group if of_code.before(end) is None]
    # No other kind of end is known to have come before all of these.
    early = {of: _Earliest(group) for of, group in groups.items()}
    every = _Earliest(end for group in groups.values() for end in group)

    def is_first(of: object, group: list[End]) -> bool:
        if not all(before := [every.before(end) for end in group]):
            return True
        likely = dict.fromkeys(signature(end.best) for end in before if end) | early
        return not any(all(map(early[o].before, group)) for o in likely if o != of)

    firsts = {of: group for of, group in groups.items() if is_first(of, group)}
    found = [_cause(view, ends, group) for group in sorted(firsts.values(), key=_weight)]
    later = [group for of, group in groups.items() if of not in firsts]
    if len(found) > 1:
        one, *others = found
        names = "; ".join(textwrap.shorten(s.support[0].text, 100) for s in others[:_FEW])
        names += f"; and {len(others) - _FEW} more" if len(others) > _FEW else ""
        point = Point(f"not known to be before: {names}", others[0].support[0].source)
        lowered = [replace(s, certainty=0) for s in others]
        return [replace(one, certainty=min(one.certainty, 1), against=(point,)), *lowered]
    if later:
        point = Point(f"{counted(len(later), 'other end')} came after it")
        too = [
            f"{count([end.process for end in group])} raised {timeline.said(group[0].best)}"
            for group in later if group[0].best.how == "exception"
        ]  # fmt: skip
        raised = "; ".join(f"{text[:_MOST_WORDS]}, too" for text in too[:_FEW])
        found = [replace(found[0], support=(*found[0].support, point), raised=raised)]
    return found


def _is_of_any_job(end: End, view: View) -> bool:
    """Returns whether only a node's log tells of an end, and nothing of the job's processes."""
    log = end.best.by == "kernel" and end.process.pid is not None
    return log and all(process.rank is None for process in view.processes)


def _is_at_once(own: Sequence[End]) -> bool:
    """Returns whether all processes raised within moments: none had heard of another's error."""
    times = [end.time for end in own if end.best.how == "exception" and end.time is not None]
    return len(times) == len(own) and max(times) <= min(times) + _AT_ONCE


def _weight(group: list[End]) -> tuple[bool, int, int, float, int]:
    best = group[0].best
    nameless = group[0].process.key is None
    line = min(end.best.source.line or 0 for end in group)
    return nameless, _ORDER[best.how], len(group), group[0].time or 0.0, line


def _cause(view: View, ends: Sequence[End], group: list[End]) -> Suspect:
    first = min(group, key=lambda end: (end.process.rank is None, end.process.rank or 0))
    best = first.best
    culprits = tuple(end.process for end in group if end.process.key is not None)
    unnamed = not culprits
    hosts = {end.process.host for end in group}
    if unnamed and len(hosts) == 1 and None not in hosts:
        culprits = (replace(best.process, label="a process"),)
    victims = [end for end in ends if end.why in ("lost", "waited")]
    everywhere = _everywhere(view, ends, group)
    # Somebody ended the whole job: what it did until then is another question.
    ended_job = everywhere and best.how == "signal" and best.signal in FROM_OUTSIDE
    told = {_words(end): Point(_words(end), end.best.source) for end in reversed(group)}
    support = [*reversed(told.values())][:_MOST_POINTS]
    if everywhere:
        support = [Point(f"{count(culprits)}: all ended by the same: {_words(first)}", best.source)]
    support += _victims(victims)
    ended = [end.process for end in ends if end.why == "ended"]
    if ended:
        was = "were" if len(ended) > 1 else "was"
        support.append(Point(f"{count(ended)} {was} ended after that"))
    raised = best.how == "exception"
    single = len(first.deaths) == 1 and not everywhere
    stood = STOOD.search(best.text)
    alone = (stood or best.among) and single and not ended
    alone = alone and not any(first.before(end) for end in ends)
    doubts = (
        (unnamed, 1, "no line says which rank it was"),
        (_is_of_any_job(first, view), 1, "nothing that was read says that it was of the job"),
        (_is_bare(best), 1, "why it exited is not in what was read"),
        (best.how == "exit" and best.code is None and (victims or view.timed_out), 0,
         "how it ended is not known, nor that it was before the others"),
        (raised and not best.text, 0, "what it raised is not in what was read"),
        (raised and not (len(first.deaths) > 1 or victims or ended), 1,
         "nothing says that the process ended by it"),
        (stood, int(not alone), "why it stood still is not in what was read"),
        (best.among and alone, 0,
         "what came before it may not be in what was read"),
        (_after_timeouts(view, group), 1, "other ranks had timed out before"),
    )  # fmt: skip
    certainty, doubt = min(((sure, text) for fits, sure, text in doubts if fits),
                           key=lambda doubt: doubt[0], default=(2, ""))  # fmt: skip
    rule = "same-end-everywhere" if everywhere else "first-end"
    return Suspect(
        causes.DEAD, culprits, "ended-from-outside" if ended_job else rule, certainty,
        support=tuple(support), against=(Point(doubt, best.source),) if doubt else (),
        waiting=_known(victims), at=_call(victims), death=best,
        leaf=best.site[0] if best.site else None, time=first.time,
    )  # fmt: skip


def _is_bare(death: Death) -> bool:
    return death.how == "exit" and not death.text


def _everywhere(view: View, ends: Sequence[End], group: list[End]) -> bool:
    """Returns whether all ranks ended by the same: then none is odd, the code is."""
    known = {end.process.rank for end in group if end.process.rank is not None}
    others = {end.process.rank for end in ends if end.process.rank is not None}
    # Without the size of the job: if the ranks that ended leave no gap.
    world = view.world or max(others, default=0) + 1
    return len(known) > 1 and len(known) >= world


def _after_timeouts(view: View, group: list[End]) -> bool:
    """Returns whether a watchdog gave up on the same host before the first of these ended."""
    known = [death for end in group if (death := end.timed)]
    first = min(known, key=lambda death: death.time or 0.0, default=None)
    hosts = {end.process.host for end in group}
    return first is not None and any(
        p.timed_out and p.time is not None and p.process.host in hosts
        and p.time + (1.0 if p.wall == first.wall else timeline.ZONES) < (first.time or 0.0)
        for p in view.all_progress
    )  # fmt: skip


def _awaited(view: View, ends: Sequence[End]) -> list[Suspect]:
    """No rank ended by itself: those that waited in vain, or lost a peer, waited for the others."""
    victims = [end for end in ends if end.why in ("lost", "waited")]
    waited = [end for end in victims if end.why == "waited"]
    if not victims:
        return []
    if absent := _absent_in_store(view, ends) or _never_came(victims):
        return [absent]
    ended = {end.process for end in ends if end.why != "ended"}
    if finished := [death for p, death in view.finished.items() if p not in ended]:
        finished.sort(key=lambda death: death.process.rank or 0)
        points = [Point(f"{count([d.process])} {_DONE[d.went_on]}", d.source) for d in finished]
        left = [death.process for death in finished]
        return [_left(causes.NOT_ENTERED, left, "finished", points, victims, certainty=2)]
    if len(victims) == 1 and not waited and victims[0].best.how == "exception":
        (end,) = victims
        return [Suspect(
            causes.DEAD, (end.process,) if end.process.key else (), "lost-one-connection", 0,
            support=(Point(_words(end), end.best.source),),
            against=(Point("whom it lost, and why, is not in what was read"),),
            death=end.best, leaf=end.best.site[0] if end.best.site else None, time=end.time,
        )]  # fmt: skip
    sure = False
    known = {end.process.rank for end in ends if end.process.rank is not None}
    everyone = set(range(view.world or max(known, default=-1) + 1))
    alive = {p.rank for p, state in view.states.items() if state.state in _ALIVE}
    silent = everyone - known
    enough = known if view.world else len(known) > 2  # the few that spoke may be any part of a job
    if not waited and enough and len(silent) == 1 and not silent & alive:
        # All but one lost a peer, and nothing says how that one ended: it left them.
        gone, source = Process(silent.pop()), victims[0].best.source
        point = Point(f"{count([gone])} is the only one that lost no peer", source)
        return [_left(
            causes.DEAD, [gone], "gone-without-a-word", [point], victims,
            certainty=int(view.is_size_told), death=Death(gone, "exit", source),
            against=(Point("no line says how it ended"),),
        )]  # fmt: skip
    unresponsive = [
        end for end in ends if end.why == "ended" and end.best.signal == 9
        and any(d.by == "launcher" and d.signal == 9 and d.text for d in end.deaths)
    ]  # fmt: skip
    named, points = [end.process for end in unresponsive], []
    if named:
        text = f"{count(named)} did not end when asked to, and had to be killed"
        points.append(Point(text, unresponsive[0].best.source))
    elif waited:
        said = {e.process.rank for e in victims if e.process.rank is not None} | view.timed_out
        # A rank that lost a peer was inside the call, or came to it when the others had given up.
        silent = everyone - said or everyone - {e.process.rank for e in waited} - view.timed_out
        few = view.world is not None or 2 * len(silent) < len(said)  # else there may be others
        if silent and len(silent) < max(2, len(everyone) // 2) and few:
            named = [*view.named(sorted(silent))]
            points.append(Point(f"{count(named)} never said to have timed out"))
        sure = view.is_size_told and bool(everyone - said)
    rule = (
        "did-not-end" if unresponsive else "without-a-timeout" if named
        else "timed-out" if waited else "lost-peers"
    )  # fmt: skip
    certainty = int(len(named) == 1 and (bool(unresponsive) or sure))
    cause = causes.NOT_ENTERED_OR_INSIDE if named else causes.UNKNOWN
    return [_left(cause, named, rule, points, victims, certainty=certainty)]


def _left(
    cause: Cause, named: Sequence[Process], rule: str, points: Sequence[Point], victims: list[End],
    **more: Any,
) -> Suspect:  # fmt: skip
    """Makes a suspect of the ranks awaited by those that lost a peer, or waited in vain."""
    return Suspect(
        cause, tuple(named), rule, support=(*points[:_MOST_POINTS], *_victims(victims)),
        waiting=_known(victims, named), at=_call(victims), **{"certainty": 0, **more},
    )  # fmt: skip


def _known(ends: Sequence[End], but: Sequence[Process] = ()) -> tuple[Process, ...]:
    """Returns the processes of ends that have a name."""
    return tuple(e.process for e in ends if e.process.key is not None and e.process not in but)


def _absent_in_store(view: View, ends: Sequence[End]) -> Suspect | None:
    """Returns the ranks awaited when the others set up their group: a key in the store names it."""
    found = [(d, seen) for d in view.deaths if (seen := _STORE_KEY.search(d.text))]
    names = {int(seen[1] or seen[2]) for _, seen in found}
    if len(names) != 1 or names & {end.process.rank for end in ends if end.why != "ended"}:
        return None
    (rank,) = names
    died, seen = found[0]
    return Suspect(
        causes.NOT_ENTERED, view.named([rank]), "absent-in-store", int(len(found) > 1),
        support=(Point(f"{seen[0]} of the store: the key that rank {rank} sets", died.source),),
        against=(Point("others may be late as well"),),
        waiting=tuple(death.process for death, _ in found if death.process.key is not None),
        at=Call(None, "init_process_group" if seen[1] else "the first NCCL call"),
    )  # fmt: skip


def _never_came(victims: list[End]) -> Suspect | None:
    """Returns that processes are missing where a store waits for all of them: it counts them."""
    for end in victims:
        if found := _JOINED.search(end.best.text):
            came, all_ = sorted(int(number) for number in found.groups() if number)
            text = f"{all_ - came} of {all_} processes never came to the rendezvous: they did not"
            points = [Point(f"{text} start, or can't reach its host", end.best.source)]
            return _left(causes.UNKNOWN, (), "never-came", points, victims)
    return None


def _victims(victims: Sequence[End]) -> list[Point]:
    points = []
    for why, words in (("waited", "timed out waiting for others"), ("lost", "lost a peer")):
        if some := [end for end in victims if end.why == why]:
            text = ": ".join(filter(None, (words, timeline.said(some[0].best))))
            points.append(Point(f"{count([e.process for e in some])} {text}", some[0].best.source))
    return points


def _call(victims: Sequence[End]) -> Call | None:
    """Returns the call in which victims stood, from their tracebacks."""
    for end in victims:
        for index, frame in enumerate(end.best.site):
            if frame.file.endswith("distributed_c10d.py"):
                return Call(None, frame.function, site=end.best.site[index + 1 :])
    return None


def _words(end: End) -> str:
    death = end.best
    name = count([end.process]) if end.process.key is not None else "a process"
    child = f"'s {death.child}" if death.child else ""
    return f"{name}{child} {timeline.death_text(death)}"

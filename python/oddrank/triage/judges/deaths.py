"""Finds the first cause among the ends of processes. What follows from another's end is folded.

A process ends by itself (own), because it lost another one (lost), because it waited in vain for
another one (waited), or because somebody ended it (ended). Only the first kind is a cause. What a
launcher calls the root cause is the exit that it saw first, often a victim's. One that finds
another size than it expects (unlike) shows a mismatch, and not whose size is wrong.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from oddrank.finding import ranks_text
from oddrank.triage.facts import Call, Death, Point, Process, Source, Suspect, ranks
from oddrank.triage.view import View

Why = Literal["own", "unlike", "lost", "waited", "ended"]

_WAITED = re.compile(
    r"Timed out waiting \d+ ?ms|Watchdog caught collective operation timeout"
    r"|failed to pass monitoredBarrier|received errors while waiting for send/recv"
    r"|timed out in monitoredBarrier|[Oo]peration timed out|Timeout\(ms\)="
)
_LOST = re.compile(
    r"Connection (?:was )?(?:reset|closed|refused|aborted)|[Bb]roken pipe|BrokenPipeError"
    r"|ConnectionResetError|ECONNRESET|recvValue failed|failed to recv, got 0 bytes"
    r"|Remote process exited|remote process exited|ncclRemoteError|remote error"
    r"|communicator was aborted|aborted communicator|another rank|DistStoreError|DistNetworkError"
    r"|RendezvousConnectionError|RendezvousClosedError|client socket has|Socket Timeout"
    r"|wait timeout after|Socket closed|store->get\(|Application timeout caused pair closure"
    r"|NCCL watchdog|No route to host|Software caused connection abort|^\w+ after \w+ failed$"
)
_UNLIKE = re.compile(
    r"op\.preamble\.length <= op\.nbytes|Received data size doesn't match expected"
)
_STOPPED = re.compile(r"^(?:KeyboardInterrupt|SignalException|SystemExit)\b")
# Signals that end victims, too: an abort after a lost peer, a crash while others tear down.
_CASCADES = frozenset({6, 11})
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_MOST_POINTS = 8
# Of ends whose order is not known, the kind that explains others best comes first.
_ORDER = {"oom": 0, "evicted": 1, "exception": 2, "signal": 2, "abort": 3, "exit": 4}


@dataclass(frozen=True)
class _End:
    """How one process ended: what all sources say of it, and what says it best."""

    process: Process
    why: Why
    best: Death
    deaths: tuple[Death, ...]

    @property
    def time(self) -> float | None:
        return min((d.time for d in self.deaths if d.time is not None), default=None)


def judge(view: View) -> list[Suspect]:
    """Returns who ended first and why; if nobody ended by itself, who the others waited for."""
    if not view.deaths:
        return []
    ends = _told_by_kernel(view, _ends(view))
    own = [end for end in ends if end.why == "own"]
    # A crash among other ends may be theirs: a library that is torn down under a thread.
    first = [end for end in own if end.best.signal not in _CASCADES or end.best.how != "signal"]
    if first and len(first) < len(own):
        crashes = [end for end in own if end not in first]
        own = first + [end for end in crashes if all(_before(end, other) for other in first)]
    unlike = [end for end in ends if end.why == "unlike"]
    if own and not unlike:
        return _causes(view, ends, own)
    return _mismatch(ends, unlike) if unlike else _awaited(view, ends)


def _ends(view: View) -> list[_End]:
    """Returns how each process ended. A death that names no process is one by itself."""
    of: dict[object, list[Death]] = defaultdict(list)
    for number, death in enumerate(view.deaths):
        of[_key(death.process) or number].append(death)
    timed_out = _timed_out(view)
    ends = [_end(deaths, timed_out) for deaths in of.values()]
    if all(end.why == "ended" for end in ends):
        # Nobody else ended, so the signal came from outside, if it was not the launcher's.
        ends = [
            replace(end, why="own") if not any(d.by == "launcher" for d in end.deaths) else end
            for end in ends
        ]
    return _attached(ends)


def _told_by_kernel(view: View, ends: list[_End]) -> list[_End]:
    """Drops processes of others from what the log of a whole host tells.

    Where the job's own processes are known, another one's end is not of it. In a container pids
    differ from the kernel's: if one rank ended without a word, and one such line or a count of its
    cgroup tells of a kill, it was that one.
    """
    strangers = [
        end for end in ends
        if end.process.rank is None and end.process.host in view.began
        and all(death.by == "kernel" for death in end.deaths)
    ]  # fmt: skip
    ends = [end for end in ends if end not in strangers]
    silent = [
        end for end in ends
        if end.why == "own" and end.best.how == "signal" and end.best.signal in (None, 9)
    ]  # fmt: skip
    if len(silent) != 1:
        return ends
    (one,) = silent
    kills = [end.best for end in strangers if end.process.host == one.process.host]
    counted = [
        Death(one.process, "oom", t.source, signal=9, by="kernel", text=t.text)
        for t in view.troubles
        if t.kind == "oom" and t.code == "cgroup" and t.host == one.process.host
    ]
    why = kills if len(kills) == 1 else counted[:1]
    if not why:
        return ends
    best = replace(why[0], process=one.process, site=one.best.site)
    told = replace(one, best=best, deaths=(*one.deaths, best))
    return [told if end is one else end for end in ends]


def _key(process: Process) -> object:
    if process.rank is not None:
        return ("rank", process.rank)
    if process.pid is not None:
        return ("pid", process.host, process.pid)
    return ("label", process.host, process.label) if process.label else None


def _end(deaths: Sequence[Death], timed_out: set[int]) -> _End:
    """Returns why a process ended. Its own words count more than its exit code."""
    whys = [(_why(death), death) for death in deaths]
    process = next((d.process for d in deaths if d.process.rank is not None), deaths[0].process)
    launched = any(death.by == "launcher" for death in deaths)
    order: tuple[Why, ...] = ("unlike", "own", "waited", "lost")
    for why in order:
        spoke = [d for w, d in whys if w == why and (d.text or d.how in ("oom", "evicted"))]
        if spoke and (why != "own" or any(d.how != "signal" for d in spoke)):
            return _End(process, why, _best(spoke), tuple(deaths))
    if launched:
        return _End(process, "ended", _best(deaths), tuple(deaths))
    own = [d for w, d in whys if w == "own"]
    if not own:
        return _End(process, whys[0][0], _best(deaths), tuple(deaths))
    best = _best(own)
    waited = process.rank in timed_out and (best.signal in (6, None) or best.how == "exit")
    return _End(process, "waited" if waited else "own", best, tuple(deaths))


def _why(death: Death) -> Why:
    if death.by == "launcher" or (death.how == "signal" and death.signal in (2, 15)):
        return "ended"
    if _UNLIKE.search(death.text):
        return "unlike"
    if death.by == "watchdog" or _WAITED.search(death.text):
        return "waited"
    if _STOPPED.search(death.text):
        return "ended"
    if death.failed or _LOST.search(death.text):
        return "lost"
    return "own"


def _best(deaths: Sequence[Death]) -> Death:
    """Returns the death that says most: memory, then an exception, then a signal."""
    order = {"oom": 0, "evicted": 1, "exception": 2, "abort": 3, "signal": 4, "exit": 5}
    return min(deaths, key=lambda d: (order[d.how], not d.text, d.time or 0.0))


def _attached(ends: list[_End]) -> list[_End]:
    """Gives words that name no process to the only process that can have said them."""
    nameless = [end for end in ends if _key(end.process) is None and end.best.text]
    named = [end for end in ends if _key(end.process) is not None]
    if not nameless or not named:
        return ends
    silent = [
        end for end in named if end.why == "own" and not end.best.text
        and (end.best.how == "exit" or end.best.signal == 6)
    ]  # fmt: skip
    own = _distinct(end for end in nameless if end.why == "own")
    whys = {end.why for end in nameless}
    if len(own) == 1 and silent and (len(silent) == 1 or ("own" in whys and len(whys) == 1)):
        best = own[0].best
        told = [
            replace(end, best=replace(best, process=end.process, time=end.time), deaths=end.deaths)
            for end in silent
        ]
        return [end for end in named if end not in silent] + told
    if not own:
        # They all lost or awaited another process: so did those that exited without a word.
        why = nameless[0].why
        told = [replace(end, why=why, best=replace(nameless[0].best, process=end.process))
                for end in silent]  # fmt: skip
        return [end for end in named if end not in silent] + told
    return named + nameless


def _distinct(ends: Iterable[_End]) -> list[_End]:
    return list({_signature(end.best): end for end in ends}.values())


def _signature(death: Death) -> object:
    """Equal for ends that are the same thing: numbers such as ranks and addresses do not count."""
    site = (death.site[0].file, death.site[0].line) if death.site else None
    text = _NUMBERS.sub("#", death.text.partition("\n")[0])
    return death.how, death.signal, death.code, text, site


def _causes(view: View, ends: Sequence[_End], own: Sequence[_End]) -> list[Suspect]:
    """Returns a suspect for each kind of own end, the first one surest."""
    groups: dict[object, list[_End]] = defaultdict(list)
    for end in own:
        groups[_signature(end.best)].append(end)
    firsts = [group for group in groups.values() if _may_be_first(group, groups.values())]
    found = [_cause(view, ends, group) for group in sorted(firsts, key=_weight)]
    later = len(groups) - len(firsts)
    if len(found) > 1:
        one, *others = found
        names = "; ".join(_short(s) for s in others[:_MOST_POINTS])
        point = Point(f"not known to be before: {names}", _source(others[0]))
        lowered = [replace(s, certainty=0) for s in others]
        return [replace(one, certainty=min(one.certainty, 1), against=(point,)), *lowered]
    if later:
        point = Point(f"{later} other ends came after it")
        found = [replace(found[0], support=(*found[0].support, point))]
    return found


def _may_be_first(group: list[_End], all_groups: Iterable[list[_End]]) -> bool:
    """Returns whether no other kind of end is known to have come before."""
    return not any(
        all(any(_before(other, end) for other in others) for end in group)
        for others in all_groups
        if others is not group
    )


def _before(one: _End, other: _End) -> bool:
    """Returns whether an end came before another, as far as their clocks tell."""
    a, b = _timed(one), _timed(other)
    if a is None or b is None or a.time is None or b.time is None:
        return False
    same_clock = (
        one.process.host == other.process.host
        if one.process.host and other.process.host
        else a.source.file == b.source.file
    )
    return same_clock and b.time - a.time > (1.0 if a.coarse or b.coarse else 0.0)


def _timed(end: _End) -> Death | None:
    """Returns the most exact time that is known of an end."""
    known = [death for death in end.deaths if death.time is not None]
    return min(known, key=lambda d: (d.coarse, d.time or 0.0), default=None)


def _weight(group: list[_End]) -> tuple[bool, int, int, float, int]:
    best = group[0].best
    nameless = _key(group[0].process) is None
    line = min(end.best.source.line or 0 for end in group)
    return nameless, _ORDER[best.how], len(group), group[0].time or 0.0, line


def _cause(view: View, ends: Sequence[_End], group: list[_End]) -> Suspect:
    first = min(group, key=lambda end: (end.process.rank is None, end.process.rank or 0))
    best = first.best
    culprits = tuple(end.process for end in group if _key(end.process) is not None)
    victims = [end for end in ends if end.why in ("lost", "waited")]
    everywhere = _everywhere(view, ends, group)
    support = [Point(_words(end), end.best.source) for end in group[:_MOST_POINTS]]
    if everywhere:
        support = [Point(f"{_who(culprits)}: all ended by the same: {_words(first)}", best.source)]
    support += [*_of_cuda(best), *_victims(victims)]
    ended = [end.process for end in ends if end.why == "ended"]
    if ended:
        was = "were" if len(ended) > 1 else "was"
        support.append(Point(f"{_who(ended)} {was} ended after that"))
    against: tuple[Point, ...] = ()
    certainty = 2
    if not culprits:
        certainty = 1
        against = (Point("no line says which rank it was", best.source),)
    elif best.how == "exit" and not best.text:
        certainty = 1
        against = (Point("why it exited is not in what was read", best.source),)
    elif best.how == "exception" and not _confirmed(first, victims, ended):
        certainty = 1
        against = (Point("nothing says that the process ended by it", best.source),)
    elif _after_timeouts(view, group):
        certainty = 1
        against = (Point("other ranks had timed out before"),)
    return Suspect(
        "dead",
        culprits,
        rule="same-end-everywhere" if everywhere else "first-end",
        certainty=certainty,
        support=tuple(support),
        against=against,
        waiting=tuple(end.process for end in victims if _key(end.process) is not None),
        at=_call(victims),
        death=best,
        leaf=best.site[0] if best.site else None,
        time=first.time,
    )


def _of_cuda(death: Death) -> list[Point]:
    """Returns what the place of an error of CUDA means: it is not where it arose."""
    if "CUDA error" not in death.text or not (death.site and death.site[0].native):
        return []
    known = [frame for frame in death.site if "c10d::" in frame.function]
    caller = f", called by {known[-1].function.partition('(')[0]}" if known else ""
    text = (
        f"noticed in {death.site[0].function}{caller}: CUDA reports an error at a later call than"
        " the one that failed, so that this place is not its cause"
    )
    return [Point(text, death.source)]


def _everywhere(view: View, ends: Sequence[_End], group: list[_End]) -> bool:
    """Returns whether all ranks ended by the same: then none is odd, the code is."""
    known = {end.process.rank for end in group} - {None}
    world = view.world or len({end.process.rank for end in ends} - {None})
    return len(known) > 1 and len(known) >= world


def _confirmed(end: _End, victims: Sequence[_End], ended: Sequence[Process]) -> bool:
    """Returns whether more than a traceback says that the process ended: it may have gone on."""
    return len(end.deaths) > 1 or bool(victims) or bool(ended)


def _after_timeouts(view: View, group: list[_End]) -> bool:
    """Returns whether a watchdog gave up on the same host before the first of these ended."""
    time = min((end.time for end in group if end.time is not None), default=None)
    hosts = {end.process.host for end in group}
    return time is not None and any(
        p.time is not None and p.time + 1.0 < time and p.process.host in hosts
        for members in view.progress.values()
        for p in members.values()
        if p.timed_out
    )


def _awaited(view: View, ends: Sequence[_End]) -> list[Suspect]:
    """Nobody ended by itself: those that waited in vain, or lost a peer, waited for the others."""
    victims = [end for end in ends if end.why in ("lost", "waited")]
    waited = [end for end in victims if end.why == "waited"]
    if not victims:
        return []
    sure = False
    known = {end.process.rank for end in ends if end.process.rank is not None}
    everyone = set(range(view.world or max(known, default=-1) + 1))
    if not waited and known and len(everyone - known) == 1:
        return [_gone(victims, Process((everyone - known).pop()))]
    unresponsive = [
        end for end in ends if end.why == "ended" and end.best.signal == 9
        and any(d.by == "launcher" and d.signal == 9 for d in end.deaths)
    ]  # fmt: skip
    named = [end.process for end in unresponsive]
    support = _victims(victims)
    if named:
        support.insert(0, Point(f"{_who(named)} did not end when asked to, and had to be killed",
                                unresponsive[0].best.source))  # fmt: skip
    elif waited:
        said = {e.process.rank for e in victims if e.process.rank is not None} | _timed_out(view)
        # A rank that lost a peer was inside the call, or came to it when the others had given up.
        silent = everyone - said or everyone - {end.process.rank for end in waited}
        if silent and len(silent) < max(2, len(everyone) // 2):
            of = {end.process.rank: end.process for end in ends if end.process.rank is not None}
            named = [of.get(rank) or Process(rank) for rank in sorted(silent)]
            support.append(Point(f"{_who(named)} never said to have timed out"))
        sure = bool(everyone - said)
    names = bool(named) and (bool(waited) or bool(unresponsive))
    return [
        Suspect(
            "not-entered-or-inside" if names else "unknown",
            tuple(named) if names else (),
            rule="did-not-end" if unresponsive else "without-a-timeout",
            certainty=int(len(named) == 1 and (bool(unresponsive) or sure)),
            support=tuple(support),
            waiting=tuple(e.process for e in victims if _key(e.process) and e.process not in named),
            at=_call(victims),
        )
    ]


def _gone(victims: Sequence[_End], process: Process) -> Suspect:
    """All but one rank lost a peer, and nothing says how that one ended: it left them."""
    source = victims[0].best.source
    return Suspect(
        "dead", (process,), rule="gone-without-a-word", certainty=1,
        support=(Point(f"{_who([process])} is the only one that lost no peer", source),
                 *_victims(victims)),
        against=(Point("no line says how it ended"),),
        waiting=tuple(end.process for end in victims if _key(end.process)),
        at=_call(victims), death=Death(process, "exit", source),
    )  # fmt: skip


def _timed_out(view: View) -> set[int]:
    return {
        rank
        for members in view.progress.values()
        for rank, progress in members.items()
        if progress.timed_out
    }


def _mismatch(ends: Sequence[_End], unlike: Sequence[_End]) -> list[Suspect]:
    """Ranks that were sent more than they expected: they or their peers gave another size."""
    points = [Point(_words(end), end.best.source) for end in unlike[:_MOST_POINTS]]
    victims = [end for end in ends if end.why in ("unlike", "waited", "lost")]
    return [
        Suspect(
            "unknown", (), rule="sizes-differ", certainty=0,
            support=(*points, *_victims([end for end in ends if end.why in ("lost", "waited")])),
            waiting=tuple(end.process for end in victims if _key(end.process) is not None),
            at=_call(victims),
        )
    ]  # fmt: skip


def _victims(victims: Sequence[_End]) -> list[Point]:
    points = []
    for why, words in (("waited", "timed out waiting for others"), ("lost", "lost a peer")):
        some = [end for end in victims if end.why == why]
        if some:
            text = _short_text(some[0].best)
            points.append(Point(f"{_who([e.process for e in some])} {words}: {text}",
                                some[0].best.source))  # fmt: skip
    return points


def _call(victims: Sequence[_End]) -> Call | None:
    """Returns the call in which victims stood, from their tracebacks."""
    for end in victims:
        for index, frame in enumerate(end.best.site):
            if frame.file.endswith("distributed_c10d.py"):
                return Call(None, frame.function, site=end.best.site[index + 1 :])
    return None


def _who(processes: Sequence[Process]) -> str:
    known = ranks(processes)
    if known:
        return ranks_text(known)
    labels = {p.label or (f"pid {p.pid}" if p.pid else "") for p in processes}
    if len(labels) == 1 and (label := labels.pop()):
        return label
    count = len(processes)
    return f"{count} process{'es' if count != 1 else ''}"


def _words(end: _End) -> str:
    death = end.best
    name = _who([end.process]) if _key(end.process) is not None else "a process"
    if death.how == "signal":
        return f"{name} ended by signal {death.signal}"
    if death.how == "exit":
        return f"{name} exited" + (f" with code {death.code}" if death.code is not None else "")
    if death.how == "oom":
        return f"{name} ran out of memory"
    return f"{name}: {_short_text(death)}"


def _short(suspect: Suspect) -> str:
    return suspect.support[0].text if suspect.support else _who(suspect.processes)


def _source(suspect: Suspect) -> Source | None:
    return suspect.support[0].source if suspect.support else None


def _short_text(death: Death) -> str:
    text = death.text.strip().partition("\n")[0]
    return text if len(text) <= 200 else text[:200] + "..."

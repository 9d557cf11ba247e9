"""Says how each process ended and why, by its own last words and other processes' words.

own: by itself; lost: because it lost another one; waited: because it waited in vain for another
one; ended: somebody ended it; unlike: it was sent another size than it expected.
"""

import re
import signal
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from oddrank.triage import timeline
from oddrank.triage.facts import OF_CGROUP, Death, Process
from oddrank.triage.view import View, since

Why = Literal["own", "unlike", "lost", "waited", "ended"]


_UNLIKE = re.compile(
    r"op\.preamble\.length <= op\.nbytes|Received data size doesn't match expected"
    r"|Detected mismatch between collectives"
)
STOOD = re.compile("watchdog (?:got stuck|hang)")
# Errors of Python's pipes and sockets, as to a DataLoader worker. No collective raises them.
_OF_PYTHON = re.compile(r"(?:Connection(?:Aborted|Refused|Reset)?|BrokenPipe|EOF)Error\b")
_STOPPED = re.compile(r"^(?:KeyboardInterrupt|SignalException|SystemExit)\b")
TOLD = frozenset({1, 2, 15})  # signals that ask a process to end: SIGHUP, SIGINT, SIGTERM
FROM_OUTSIDE = TOLD | {9}  # signals that others send
# torch's words in the process that started the worker: which of the two is a race inside of torch.
_WORKER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (\d+)\) "
    r"(?:is killed by signal: ([A-Z][\w ]*)\.|exited unexpectedly(?: with exit code (\d+))?)"
)
_WITH_ITS_NODE = 60.0  # seconds between the end of a node and the ends of its ranks
_ONE_SIGNAL = 1.0  # seconds in which guards see ends by one signal; more if their CPUs are busy
_AT_ONCE = 0.03  # seconds between two ends by signals that were sent together
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_AFTER = re.compile(r"(?:, |: )after [\w.]+: ")  # what it was raised after, as arm.py writes it


@dataclass(frozen=True)
class End:
    """How one process ended: what all sources say of it, and what says it best."""

    process: Process
    why: Why
    best: Death
    deaths: tuple[Death, ...]

    @property
    def time(self) -> float | None:
        return min((d.time for d in self.deaths if d.time is not None), default=None)

    @cached_property
    def timed(self) -> Death | None:
        """The most exact time that is known of it."""
        known = [death for death in self.deaths if death.time is not None]
        return min(known, key=lambda d: (d.coarse, d.time or 0.0), default=None)

    def before(self, other: "End") -> bool:
        """Returns whether it came before another, as far as their clocks tell."""
        a, b = self.timed, other.timed
        if a is None or b is None or a.time is None or b.time is None:
            return a is None and b is None and _was_told_before(self.best, other.best)
        same_clock = (
            self.process.host == other.process.host
            if self.process.host and other.process.host
            else a.source.file == b.source.file
        )
        if a.wall != b.wall:
            return same_clock and b.time - a.time > timeline.ZONES
        gap, close = b.time - a.time, 1.0 if a.coarse or b.coarse else 0.0
        if abs(gap) <= close:
            return _was_told_before(self.best, other.best)
        return same_clock and gap > close


def ends_of(view: View) -> list[End]:
    """Returns how each process ended. A death that names no process is one by itself."""
    of: dict[object, list[Death]] = defaultdict(list)
    strangers: list[Death] = []
    for number, death in enumerate(map(_of_worker, view.deaths)):
        if child := view.child(death.process):
            what = f"{child.what or 'child process'} pid {death.process.pid}"
            death = replace(death, process=child.parent, child=what)  # noqa: PLW2901
        if (death.source, death.time) in view.kills_of_others:
            continue
        # The log of a whole host may tell of processes that are none of the job's: that shows only
        # where a source says which processes the job has.
        if death.by == "kernel" and death.process.rank is None and death.process.host in view.began:
            strangers.append(death)
        else:
            of[death.process.key or death.child or number].append(_of_memory(death, view))
    gave_up = min((p.time for p in view.all_progress if p.timed_out and p.time), default=None)
    found = [_placed(_end(left, view, gave_up)) for deaths in of.values()
             if (left := _really(deaths, view))]  # fmt: skip
    found = _lost_first(found, view)
    if not view.stops:
        found = _from_outside(found, view)
    return _with_kills(_attached(found), strangers, view)


def _of_worker(death: Death) -> Death:
    """Returns the end of a worker that loads data, where its rank only says that it has ended."""
    *_, found = None, *_WORKER.finditer(death.text)  # what it was raised after says more
    if found is None or death.how != "exception":
        return death
    pid, name, code = found.groups()
    known = (n for n in signal.valid_signals() if name and signal.strsignal(n) == name)
    return replace(
        death, how="signal" if name else "exit", signal=next(known, None),
        code=int(code) if code else None, text="", site=(), failed="",
        child=f"DataLoader worker pid {pid}",
    )  # fmt: skip


def _lost_first(found: list[End], view: View) -> list[End]:
    """Takes an error of Python's pipes or sockets for an own end if others wait or failed later."""
    others = [end for end in found if end.why in ("own", "lost", "waited")]
    known = len(others) > 1 or any(progress.open for progress in view.all_progress)
    return [
        replace(end, why="own")
        if end.why == "lost" and known
        and not end.best.failed and _OF_PYTHON.match(end.best.text)
        and all(end.before(other) for other in others if other is not end) else end
        for end in found
    ]  # fmt: skip


def _from_outside(found: list[End], view: View) -> list[End]:
    """Takes a signal for the cause if it came neither from the launcher nor from a keyboard.
    It counts if all that are known of a larger job got it, or a few that ended first; not if ranks
    lost one that ended well, nor if all of the job got it."""
    # Launchers send no SIGHUP or SIGINT of their own, and kill whom it does not end. Their parent
    # may have been faster than a guard: who ended at once, nobody knows how, got the same.
    hung_up = [
        end for end in found if is_interrupt(end.best)
        or (end.why == "ended" and end.best.signal == signal.SIGHUP and end.best.by != "launcher")
    ]  # fmt: skip
    found = [
        replace(end, why="ended")
        if end.best.how == "signal" and any(
            (end.best.signal in (9, None) and one.before(end))
            or (end.best.signal is None and _is_not_long_before(end, one)) for one in hung_up
        ) else end
        for end in found
    ]  # fmt: skip
    if view.finished and any(end.why == "lost" for end in found):
        return found
    hung_up = [end for end in found if end.why == "ended" and end.best.signal != signal.SIGTERM]
    if are_most(hung_up, found, view):
        return found
    told = {
        end for end in found
        if end.why == "ended" and not is_interrupt(end.best)
        and not any(death.by == "launcher" for death in end.deaths)
    }  # fmt: skip
    if all(end.why == "ended" for end in found):
        told = told if len(told) == len(found) and not are_most(told, found, view) else set()
    else:
        # A launcher that has noticed the first end sends signals to the other ranks, too.
        since = min((end.best.gone or 0.0 for end in told), default=0.0)
        told = {end for end in told if (end.best.gone or 0.0) <= since + _AT_ONCE}
        others = [end for end in found if end not in told]
        # A job's end comes to each host at another time.
        one = len(told) == 1 and len({end.process.host for end in found}) == 1
        few = one or 2 * len(told) < max(len(found), view.world or 0)
        told = {end for end in told if few and all(_is_gone_before(end, o) for o in others)}
    return [replace(end, why="own") if end in told else end for end in found]


def are_most(some: Collection[End], ends: Collection[End], view: View) -> bool:
    """Returns whether some ends are those of all ranks; or of most, and all others came later. A
    SIGHUP of several ranks, some on each known host, is the job's: it goes to whole sessions."""
    known = {end.process.rank for end in some}
    first = min((end.best.gone for end in some if end.best.gone is not None), default=None)
    hosts = {end.process.host for end in ends}
    others = [end.best.gone for end in ends if end not in some]
    later = not others or (
        first is not None and len(hosts) == 1
        and all(gone is not None and gone > first for gone in others)
    )  # fmt: skip
    most = len(some) > 2 and 2 * len(known) > len(view.everyone)
    if any(end.best.signal == signal.SIGHUP for end in some) and len(some) > 1:
        everywhere = {process.host for process in view.processes if process.rank is not None}
        most |= everywhere <= {end.process.host for end in some}
    return bool(view.everyone) and ((most and later) or known >= view.everyone)


def _is_not_long_before(one: End, other: End) -> bool:
    """Returns whether guards of one host saw it gone when one signal may have ended both."""
    ends = one.best.gone, other.best.gone
    if ends[0] is None or ends[1] is None or one.process.host != other.process.host:
        return False
    return ends[1] - ends[0] <= _ONE_SIGNAL


def _is_gone_before(one: End, other: End) -> bool:
    """As End.before(), by when the processes were gone, if guards saw both or saw the other alive.

    A process ended after the one that it lost or waited for, unless guards saw that it went first:
    a launcher kills the rank that others have waited for in vain.
    """
    ends = one.best.gone, other.best.gone
    if other.why == "lost":
        return True
    if other.why == "waited":
        return ends[0] is None or ends[1] is None or ends[0] < ends[1]
    if ends[0] is None or one.process.host != other.process.host:
        return one.before(other)
    return ends[1] is None or ends[0] < ends[1]


def is_interrupt(death: Death) -> bool:
    """Returns whether Ctrl-C ended a process."""
    return death.text.startswith("KeyboardInterrupt") or (
        death.how == "signal" and death.signal == 2
    )


def _with_kills(ends: list[End], strangers: Iterable[Death], view: View) -> list[End]:
    """Explains the only end without a word on a host by the kernel's kill for memory there.

    In a container the kernel's pids are not the job's: if its log tells of one such kill, or a
    cgroup counts them, it was that process. A log that names no host has to tell the time.
    """
    silent = [
        end for end in ends
        if end.why == "own" and end.best.how == "signal" and end.best.signal in (None, 9)
    ]  # fmt: skip
    if len(silent) != 1:
        return ends
    (one,), host = silent, silent[0].process.host
    kills = list({d.process.key: d for d in strangers if d.process.host == host}.values())
    near = [
        end for end in ends if end.best.by == "kernel" and end.process.rank is None
        and not end.process.host and abs(since(end.best, one.best)) <= _WITH_ITS_NODE
    ]  # fmt: skip
    kills += [end.best for end in near]
    counted = [
        Death(one.process, "oom", t.source, signal=9, by="kernel", text=t.text)
        for t in view.troubles
        if t.kind == "oom" and t.code == OF_CGROUP and t.host == host
    ]
    why = kills if len(kills) == 1 else counted[:1]
    if not why:
        return ends
    best = replace(why[0], process=one.process, site=one.best.site)
    ends[ends.index(one)] = replace(one, best=best, deaths=(*one.deaths, best))
    return [end for end in ends if end not in near]


def _of_memory(death: Death, view: View) -> Death:
    """Returns a SIGKILL as the end for want of memory that a guard of its host tells of."""
    if death.how != "signal" or death.signal != 9 or death.by == "launcher":
        return death
    for trouble in view.troubles:
        apart = trouble.host and death.process.host and trouble.host != death.process.host
        if trouble.kind == "oom" and trouble.code != OF_CGROUP and not trouble.pids and not apart:
            by = "scheduler" if "limit" in trouble.text else "kernel"
            return replace(death, how="oom", by=by, text=trouble.text, among=False)
        gap = abs(trouble.time - death.time) if trouble.time and death.time else 0.0
        of_node = trouble.kind == "node" and trouble.host and trouble.host == death.process.host
        if of_node and gap <= _WITH_ITS_NODE:
            return replace(death, text=trouble.text, among=False)
    return death


def _really(deaths: Sequence[Death], view: View) -> list[Death]:
    """Leaves out exceptions after which the process went on, if nothing says that it ended."""
    left = [death for death in deaths if not death.went_on]
    others = left
    if deaths[0].process.key is None:
        others = [d for d in view.deaths if not d.went_on and d.how != "exception"]
    return left if all(_why(death) == "ended" for death in others) else list(deaths)


def _is_of_watchdog(death: Death, gave_up: float | None) -> bool:
    """Returns whether an abort follows from another rank's timeout, or from a stuck watchdog.
    The process said nothing, or only that. By a launcher's report, a rank's silent abort must be
    later; a guard that saw the rank end knows the order."""
    bare = death.text.startswith("terminate ") or (not death.text and death.signal == 6)
    behind = None if death.time is None or gave_up is None else death.time - gave_up
    stood = STOOD.search(death.text) is not None
    if bare and not stood and death.process.rank is not None:
        return death.coarse and behind is not None and behind > 0
    return (stood or bare) and (behind is None or behind >= -1.0)


def _end(deaths: Sequence[Death], view: View, gave_up: float | None) -> End:
    """Returns why a process ended. Its own words count more than its exit code."""
    late = view.timed_out
    whys: list[tuple[Why, Death]] = [
        ("waited" if late and _is_of_watchdog(death, gave_up) else _why(death), death)
        for death in deaths
    ]
    process = next((d.process for d in deaths if d.process.rank is not None), deaths[0].process)
    order: tuple[Why, ...] = ("unlike", "own", "waited", "lost")
    for why in order:
        spoke = [d for w, d in whys if w == why and (d.text or d.how in ("oom", "evicted"))]
        if spoke and (why != "own" or any(d.how != "signal" for d in spoke)):
            return End(process, why, _best(spoke), tuple(deaths))
    launched = any(death.by == "launcher" for death in deaths)
    own = [d for w, d in whys if w == "own"]
    if launched or not own:
        return End(process, "ended" if launched else whys[0][0], _best(deaths), tuple(deaths))
    best = _best(own)
    waited = process.rank in late and (best.signal in (6, None) or best.how == "exit")
    # A process gone without a reason waited, if it stood in a call with one that had ended well.
    if best.how == "signal" and best.signal is None and process.rank is not None:
        gone = {each.rank for each in view.finished}
        groups = view.of_rank.get(process.rank, {})
        waited |= any(p.open and gone & view.progress[of].keys() for of, p in groups.items())
    return End(process, "waited" if waited else "own", best, tuple(deaths))


def _placed(end: End) -> End:
    """Returns the end with the place that another source knows of it."""
    known = next((d for d in end.deaths if d.site and d.child == end.best.child), None)
    if end.best.site or known is None:
        return end
    return replace(end, best=replace(end.best, site=known.site, sampled=known.sampled))


def _why(death: Death) -> Why:
    if death.by == "launcher" or (death.how == "signal" and death.signal in TOLD):
        return "ended"
    text = _AFTER.split(death.text, maxsplit=1)[0]
    if _UNLIKE.search(text):
        return "unlike"
    if death.by == "watchdog" or timeline.WAITED.search(text):
        return "waited"
    if _STOPPED.search(text):
        return "ended"
    return "lost" if death.failed or timeline.LOST.search(text) else "own"


def _best(deaths: Sequence[Death]) -> Death:
    """Returns the death that says most: memory, then an exception, then a signal."""
    order = {"oom": 0, "evicted": 1, "exception": 2, "abort": 3, "signal": 4, "exit": 5}
    return min(deaths, key=lambda d: (order[d.how], not d.text, d.time or 0.0))


def _attached(ends: list[End]) -> list[End]:
    """Gives words that name no process to the only process that can have said them.

    An abort, or an exit with code 1, of a process without a known rank belongs to a rank that
    reported one.
    """
    for how, code in (("abort", -6), ("exception", 1)):
        told = [end for end in ends if end.process.rank is not None and end.best.how == how]
        bare = [
            end for end in ends
            if end.process.rank is None and not end.best.text
            and code == (end.best.code if end.best.signal is None else -end.best.signal)
        ]  # fmt: skip
        if told and bare:
            gone = {*bare}
            ends = [end for end in ends if end not in gone]
            if len(told) == 1:
                more = (*told[0].deaths, *(death for end in bare for death in end.deaths))
                ends[ends.index(told[0])] = replace(told[0], deaths=more)
    nameless = [end for end in ends if end.process.key is None and end.best.text]
    named = [end for end in ends if end.process.key is not None]
    if not nameless or not named:
        return ends
    silent = [
        end for end in named if end.why == "own" and not end.best.text
        and (end.best.how == "exit" or end.best.signal == 6)
    ]  # fmt: skip
    # If none ended by itself, they all lost or awaited another one: so did the silent ones.
    own = [*{signature(end.best): end for end in nameless if end.why == "own"}.values()]
    said = (own or nameless)[0]
    if own and said.best.how not in ("exception", "exit"):
        aborted = said.best.how == "abort" or said.best.signal == 6
        silent = [end for end in silent if aborted and end.best.signal == 6]
    same = not own or len(silent) == 1 or all(end.why == "own" for end in nameless)
    if len(own) > 1 or (own and not silent) or not same:
        return named + nameless
    told = [
        replace(end, why=said.why, best=replace(said.best, process=end.process, time=end.time))
        for end in silent
    ]
    gone = {*silent}
    return [end for end in named if end not in gone] + told


def signature(death: Death) -> object:
    """Equal for ends that are the same thing: numbers such as ranks and addresses do not count."""
    site = (death.site[0].file, death.site[0].line) if death.site else None
    if death.how == "oom" or (death.how == "signal" and death.signal in FROM_OUTSIDE):
        site = None  # it says where the process stood, and not what ended it
    text = _NUMBERS.sub("#", death.text.partition("\n")[0])
    code = death.code if death.how != "exception" else None  # its process may still run
    return death.how, death.signal, code, text, site, bool(death.child)


def _was_told_before(one: Death, other: Death) -> bool:
    """Returns whether a launcher reported an exit or a crash, then a kill: it ends the others."""
    return (
        (one.how == "exit" or (one.how == "signal" and one.signal not in FROM_OUTSIDE))
        and (other.how == "signal" and other.signal in FROM_OUTSIDE)
        and one.source.file == other.source.file
        and 0 < (one.source.line or 0) < (other.source.line or 0)
    )

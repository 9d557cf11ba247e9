"""Finds the ranks that others wait for, from where the threads of all ranks stand.

If ranks wait for peers in a collective, a rank in code that waits for no peer is awaited. How many
stand where decides nothing. One look cannot tell a rank that computes from one that is stuck
computing: then certainty is low, and a second dump or other evidence must show it.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from oddrank.finding import fold, grouped, ranks_text
from oddrank.triage import causes, leaves
from oddrank.triage import model_frames as kinds
from oddrank.triage.facts import Call, Frame, Process
from oddrank.triage.judges.stands import ORDER, Frames, Stand
from oddrank.triage.suspects import Cause, Point, Suspect
from oddrank.triage.view import View

_MOST_GROUPS = 8
# So many ranks must wait before one look alone names the rank that they wait for; fewer must all
# stand in one call. In healthy jobs, too, all often wait for a rank that loads its data: then more
# than a node's ranks must wait.
_MANY, _MANY_FOR_DATA, _FEW = 7, 14, 3
_RESTED = 30.0  # seconds without an event of any rank: as a second look at the same lines
# In a pipeline of a healthy job, too, a few ranks wait in these for one that computes.
_OF_PAIRS = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
_NUMBERED = re.compile(r"stack (\d+) of (.*)", re.S)
# Classes of leaves that block a host without a peer: one look tells that it stands still.
_TELLING = frozenset({
    kinds.DATA, kinds.DISK, kinds.NETWORK, kinds.FILE_LOCK, kinds.PIPE, kinds.CHILD, kinds.LOCK,
    kinds.LEAVING,
})  # fmt: skip
_MAYBE = frozenset({kinds.GPU, kinds.THREADS, kinds.MAYBE})


def judge(view: View) -> list[Suspect]:
    """Returns the suspects that the stacks of all processes show; empty without stacks."""
    found = [s for s in view.stands[0] if s.process not in view.leaving]
    if not found:
        return []
    # A paused rank waits for the ranks that have yet to come, and for none that stands.
    found = [
        replace(s, kind=kinds.PEERS, leaf=replace(s.leaf, op="a pause on purpose"))
        if s.process in view.pauses else s
        for s in found
    ]  # fmt: skip
    held = [s for s in found if s.gil]
    waiting = [s for s in found if s.kind == kinds.PEERS and not s.gil]
    maybe = [s for s in found if s.kind in _MAYBE and not s.gil]
    outside = [s for s in found if s.kind != kinds.PEERS and s.kind not in _MAYBE and not s.gil]
    victims = waiting or maybe
    missing = _missing(view, found)
    if held and victims:
        return [_blamed(
            causes.GIL_HELD, "stacks-gil-held", held, victims,
            certainty=2 if any(s.frozen for s in held) else 1,
            points=_each(held, "holds the GIL in"), against=_points(outside),
        )]  # fmt: skip
    if outside and victims:
        # The job stands still: twice at the same lines, by its records, or calls have timed out.
        records = [view.activities.get(s.process) for s in found]
        rested = all(a and not a.turns and (a.rests or 0.0) >= _RESTED for a in records)
        is_stuck = bool(view.timed_out) or rested or all(s.exact for s in found)
        return _awaited(outside, waiting, maybe, missing=missing, is_stuck=is_stuck)
    if outside or held:
        return [_all_outside([*outside, *held])]
    # The only rank that wrote no dump of itself, where at least _FEW others did.
    own = {t.process.rank for stack in view.stacks for t in stack.threads if t.own}
    mute = {*missing, *(s.process.rank for s in found)} - own
    if len(mute) == 1 and len(own) >= _FEW and None not in own:
        others = [[s for s in some if s.process.rank not in mute] for some in (waiting, maybe)]
        return [_silent(mute.pop(), *others)]
    return [_all_wait(waiting, maybe, _unseen(missing))]


def _missing(view: View, found: Sequence[Stand]) -> list[int]:
    """Returns the ranks without a stack, if the stacks' ranks are known."""
    known = {s.process.rank for s in found if s.process.rank is not None}
    if any(s.process.rank is None for s in found):
        return []
    return sorted(set(range(view.world or max(known) + 1)) - known)


# The rules.


def _blamed(
    cause: Cause, rule: str, named: Sequence[Stand], victims: Sequence[Stand], *,
    certainty: int, points: Sequence[Point], against: Sequence[Point] = (),
) -> Suspect:  # fmt: skip
    """Makes a suspect of processes that victims wait for."""
    return Suspect(
        cause, _processes(named), rule, certainty, (*points, *_points(victims)), tuple(against),
        waiting=_processes(victims), at=_call(victims, named),
        leaf=named[0].leaf.frame, leaf_class=named[0].told,
    )  # fmt: skip


def _each(stands: Sequence[Stand], does: str) -> list[Point]:
    """Returns a point for each process: what it does, and where."""
    return [Point(f"{who([s.process])} {does} {_place(s)}", s.thread.source) for s in stands]


def _awaited(
    outside: Sequence[Stand], waiting: Sequence[Stand], maybe: Sequence[Stand], *,
    missing: Sequence[int], is_stuck: bool,
) -> list[Suspect]:  # fmt: skip
    """Ranks that stand outside of collectives are awaited by the ranks inside."""
    still = [s for s in outside if not s.moved]
    if not still:
        text = f"{who(_processes(outside))}: stood elsewhere in the look before"
        point = Point(text, outside[0].thread.source)
        return [_blamed(
            causes.MOVING, "stacks-moving", outside, waiting or maybe, certainty=0, points=[point]
        )]  # fmt: skip
    telling = [s for s in still if s.kind in _TELLING]
    turning = [s for s in still if s.kind == kinds.RUNNING and s.frozen]
    named = telling + turning or still
    rest = [s for s in outside if s not in named]
    victims = waiting or maybe
    certainty = _certainty(named, rest, waiting, maybe)
    if is_stuck and not rest:
        certainty = max(certainty, 1)
    if missing or any(not s.frames[0].file for s in named):
        certainty = min(certainty, 1)  # only names of functions: a wait may be for peers
    one_look = (Point("one look only: a second dump must show that it does not move"),)
    others = (
        *_points(rest, "may be on the way: "), *(_points(maybe) if waiting else ()),
        *_unseen(missing),
    )  # fmt: skip
    found = []
    for group in _groups(named):
        twice = all(stand.frozen and not stand.thread.timed_out for stand in group)
        rule = "stacks-awaited-still" if twice else "stacks-awaited"
        seen = certainty > 1 or is_stuck or any(stand.frozen for stand in group)
        found.append(_blamed(
            causes.INFINITE_LOOP if group[0].kind == kinds.RUNNING else causes.HOST_STUCK,
            rule if waiting else "stacks-awaited-by-gpu", group, victims, certainty=certainty,
            points=_each(group[:4], "stands in"), against=others if seen else (*others, *one_look),
        ))  # fmt: skip
    return found


def _certainty(
    named: Sequence[Stand], rest: Sequence[Stand], waiting: Sequence[Stand], maybe: Sequence[Stand]
) -> int:
    """Returns how sure stacks alone make it that those named are awaited and stand still."""
    telling = any(s.kind in _TELLING for s in named)
    if all(s.frozen for s in named):
        if any(s.kind == kinds.RUNNING for s in named):
            return 1
        if telling:
            return 2 if waiting else 1
    if not telling or rest:
        # Ranks on their way say that the looks are of a job that goes on.
        return 0
    loads = any(s.kind == kinds.DATA for s in named)
    many = _MANY_FOR_DATA if loads else _MANY
    # A guess from a function's name counts if all others wait in one call.
    guess = all(s.leaf.by_name for s in named) and len({s.place for s in [*waiting, *maybe]}) > 1
    if len(waiting) + len(maybe) >= many and not guess:
        return 1 if maybe else 2
    gone = all(s.kind == kinds.LEAVING for s in named)
    alone = len(named) == 1 and named[0].rests and not loads
    return int(gone or (alone and _at_rest([*waiting, *maybe])))


def _at_rest(victims: Sequence[Stand]) -> bool:
    """Returns whether all stand in one call at one line: few looks at a job that goes on do so."""
    places = {(s.place, s.site[0].line if s.site else None) for s in victims}
    return (
        len(victims) >= _FEW
        and len(places) == 1
        and all(s.rests for s in victims)
        and victims[0].leaf.op not in _OF_PAIRS
    )


def with_places(suspect: Suspect, view: View) -> Suspect:
    """Adds where absent ranks stand, if at one place; else the other places of these ranks.

    If all other ranks have finished, the ranks that are left at one place are absent.
    """
    cause, ended = suspect.cause, [d.process for d in view.finished.values() if not d.went_on]
    left = [s for s in view.stands[0] if s.kind != kinds.LEAVING and s.process not in ended]
    rest = tuple(process for process in view.done if process not in _processes(left))
    is_rest = len(left) + len(rest) >= (view.world or 0) and _at_one_place(left)
    few = view.finished or len(left) <= len(rest)  # ranks that leave may be the odd ones
    if cause is causes.OUTSIDE and rest and is_rest and few:
        leave = any(view.done[process].text for process in rest)
        suspect = replace(
            suspect, cause=causes.HOST_STUCK, processes=_processes(left),
            rule="last-to-leave" if leave else "last-to-end",
            certainty=1, waiting=rest, leaf=None, leaf_class=left[0].told,
        )  # fmt: skip
    elif cause.about not in ("call", "stack", "held"):
        return suspect
    stood = [s for s in view.stands[0] if s.process in suspect.processes]
    lacks = suspect.leaf is None or suspect.leaf.file == leaves.KERNEL
    if lacks and len(stood) == len(suspect.processes) and _at_one_place(stood):
        first = stood[0]
        frame = first.leaf.frame
        if first.kind == kinds.PEERS and first.site:
            frame = next((f for f in first.site if leaves.is_own(f)), first.site[0])
        awaited = suspect.at and suspect.at.op
        if cause is not causes.NOT_ENTERED:
            suspect = replace(suspect, leaf=frame)
        elif first.kind != kinds.PEERS or first.leaf.op != awaited:  # else it has come since
            suspect = replace(suspect, leaf=frame, leaf_class=first.told)
    frames = dict.fromkeys(s.leaf.frame for s in stood if s.leaf.frame)
    if suspect.leaf in frames:
        suspect = replace(suspect, beside=tuple(f for f in frames if f != suspect.leaf))
    return suspect if suspect.cause.about == "held" else _with_children(suspect, view)


def _with_children(suspect: Suspect, view: View) -> Suspect:
    """Adds places of processes that ranks started.

    One with an unknown parent counts for every rank of its host, and only as a DataLoader's.
    """
    own, points, held = set(suspect.processes), [], False
    places: list[Frame] = []
    hosts, loads = {process.host for process in own}, suspect.leaf_class == kinds.DATA
    for what, stand in view.stands[1]:
        child = view.children.get(stand.process)
        of_host = loads and what == "dataloader worker" and stand.process.host in hosts
        stopped = stand.thread.state == "stopped"
        idle = stand.kind in (kinds.LOCK, "") and not stopped
        if idle or not (child.parent in own if child else of_host):
            continue
        whose = f"a {what}" + (f" of {who([child.parent])}" if child else "")
        whose = f"its {what}" if child and len(own) == 1 else whose
        does = "is stopped" if stopped else "stands"
        text = f"{whose} ({who([stand.process])}) {does} in {_place(stand)}"
        points.append(Point(text, stand.thread.source))
        if loads and len(own) == 1 and stand.leaf.frame is not None:
            places.insert(0 if stopped else len(places), stand.leaf.frame)
            held |= stopped
    beside = (*suspect.beside, *dict.fromkeys(places))
    return replace(suspect, support=(*suspect.support, *points[:4]), beside=beside, held=held)


def _at_one_place(stands: Collection[Stand]) -> bool:
    return len({stand.place for stand in stands}) == 1


def _all_outside(outside: Sequence[Stand]) -> Suspect:
    groups = _groups(outside)
    first = groups[0][0]
    one = len(groups) == 1
    locked = one and first.told == kinds.FILE_LOCK
    still = len(outside) > 1 and all(s.frozen for s in outside)
    return Suspect(
        causes.HOST_STUCK if locked else causes.OUTSIDE, _processes(outside) if locked else (),
        "stacks-all-outside", int(locked or still), _points(outside),
        leaf=first.leaf.frame if one else None,
        leaf_class=first.told if len({s.kind for s in outside}) == 1 else "",
    )  # fmt: skip


def _all_wait(
    waiting: Sequence[Stand], maybe: Sequence[Stand], unseen: tuple[Point, ...]
) -> Suspect:
    """No rank stands outside: a rank without a stack, a GPU, a network or a circle is to blame."""
    victims = (*waiting, *maybe)
    jammed = [s for s in maybe if s.leaf.frame and "Launch" in s.leaf.frame.function]
    calls = sorted(_by_line(waiting), key=len, reverse=True)
    differ = len(calls) > 1 and not maybe
    points = list(_points(victims))
    if differ:
        points = [point for call in calls[:_MOST_GROUPS] for point in _points(call)]
    if jammed:
        points.append(Point(f"{who(_processes(jammed))}: the queue of the GPU is full: victims"))
    return Suspect(
        causes.UNKNOWN, (), "stacks-different-calls" if differ else "stacks-all-wait", 0,
        support=(*points, *unseen), waiting=_processes(victims), at=_call(victims),
        leaf_class=kinds.PEERS if waiting else kinds.GPU,
    )  # fmt: skip


def _silent(missing: int | None, waiting: Sequence[Stand], maybe: Sequence[Stand]) -> Suspect:
    """All ranks but one answered with a dump of their own, and all of them wait."""
    victims, both = waiting or maybe, [*waiting, *maybe]
    text = f"rank {missing} wrote no dump of itself, as all others did"
    return Suspect(
        causes.NOT_ENTERED_OR_INSIDE, (Process(missing),), "stacks-no-answer",
        certainty=int(any(s.kind in (kinds.PEERS, kinds.MAYBE) for s in victims)),
        support=(Point(text, victims[0].thread.source), *_points(both)),
        against=(Point("a stopped or dead process writes none, nor does one that was not asked"),),
        waiting=_processes(both), at=_call(victims),
    )  # fmt: skip


def _unseen(missing: Sequence[int]) -> tuple[Point, ...]:
    return (Point(f"no stack of {ranks_text(missing)}"),) if missing else ()


# Groups and words.


def _groups(stands: Iterable[Stand]) -> list[list[Stand]]:
    """Returns processes that stand at one place, the most telling and then largest group first."""
    found = grouped((stand.place[:3], stand) for stand in stands)
    groups = sorted(found.values(), key=lambda g: (ORDER.index(g[0].kind), -len(g)))
    last = [stand for group in groups[_MOST_GROUPS - 1 :] for stand in group]
    return [*groups[: _MOST_GROUPS - 1], *filter(None, [last])]


def _by_line(stands: Iterable[Stand]) -> list[list[Stand]]:
    """Returns processes that stand at one line: an unknown one may be any of its call."""
    lines: dict[object, list[Stand]] = defaultdict(list)
    known: dict[object, int | None] = {}
    for stand in sorted(stands, key=lambda stand: stand.place[3] is None):
        call, line = stand.place[:3], stand.place[3]
        first = known.setdefault(call, line)
        lines[call, line or first].append(stand)
    return [*lines.values()]


def _call(stands: Sequence[Stand], culprits: Sequence[Stand] = ()) -> Call:
    """Returns the call whose stack shares most frames with a culprit's; else, of most ranks.

    They wait for it first; the others wait for them, or further on.
    """
    paths = {stand.frames for stand in culprits}

    def weight(group: list[Stand]) -> tuple[int, int]:
        return max((_shared(path, group[0].frames) for path in paths), default=0), len(group)

    first = max(_groups(stands), key=weight)[0]
    frame = first.leaf.frame
    name = first.leaf.op or (frame.function if frame and not frame.native else "a collective")
    return Call(None, name, site=first.site[:16])


def _shared(one: Frames, other: Frames) -> int:
    """Returns how many outer frames two paths share, that in which they part too."""
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if (a.function, a.file) != (b.function, b.file):
            break
        count += 1
        if None not in (a.line, b.line) and a.line != b.line:
            break
    return count


def _processes(stands: Iterable[Stand]) -> tuple[Process, ...]:
    return tuple(stand.process for stand in stands)


def _points(stands: Sequence[Stand], before: str = "") -> tuple[Point, ...]:
    rows = [row for group in _groups(stands) for row in _by_line(group)]
    points = [
        Point(f"{before}{who(_processes(row))} {_doing(row[0])}", row[0].thread.source)
        for row in rows[:_MOST_GROUPS]
    ]
    if more := [stand for row in rows[_MOST_GROUPS:] for stand in row]:
        points.append(Point(f"{before}{who(_processes(more))} elsewhere"))
    return tuple(points)


def _doing(stand: Stand) -> str:
    if stand.kind != kinds.PEERS:
        return f"in {_place(stand)}"
    where = f" at {leaves.text(stand.site[0])}" if stand.site else ""
    return f"in {stand.leaf.op or 'a collective'}{where}"


def _place(stand: Stand) -> str:
    return leaves.text(stand.leaf.frame) if stand.leaf.frame else "unknown code"


def who(processes: Collection[Process]) -> str:
    """Returns processes as a sentence names them: by ranks, else by pids, hosts or labels."""
    ranks = {p.rank for p in processes if p.rank is not None}
    parts = [ranks_text(ranks)] if ranks else []
    pids: dict[str, set[int]] = defaultdict(set)
    labels: dict[str, set[int]] = defaultdict(set)
    for process in processes:
        if process.rank is None and process.pid is not None:
            pids[process.host or ""].add(process.pid)
        elif process.rank is None:
            found = _NUMBERED.fullmatch(process.label)
            place = found[2] if found else process.label or process.host or "an unknown process"
            labels[place] |= {int(found[1])} if found else set()
    for host, some in pids.items():
        plural = "s" if len(some) > 1 else ""
        parts.append(f"pid{plural} {fold(some, ', ')}" + (f" on {host}" if host else ""))
    for place, some in [*labels.items()][:_MOST_GROUPS]:
        plural = "s" if len(some) > 1 else ""
        parts.append(f"stack{plural} {fold(some, ', ')} of {place}" if some else place)
    if len(labels) > _MOST_GROUPS:
        parts.append(f"{len(labels) - _MOST_GROUPS} more")
    return ", ".join(parts)

"""Finds who is waited for, from where the threads of all ranks stand.

Whoever stands in code that waits for no peer, while others wait for peers in a collective, is
awaited. How many stand where decides nothing. One look cannot tell a rank that computes from one
that is stuck computing: then certainty is low, and a second dump or other evidence must show it.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from oddrank.finding import fold, ranks_text
from oddrank.triage import leaves
from oddrank.triage.facts import Call, Cause, Frame, Point, Process, Source, Stack, Suspect, Thread
from oddrank.triage.leaves import Leaf
from oddrank.triage.model_frames import (
    DATA,
    DISK,
    GPU,
    LEAVING,
    LOCK,
    MAYBE,
    NETWORK,
    PEERS,
    RUNNING,
    THREADS,
    THROUGH,
)
from oddrank.triage.view import View

Frames: TypeAlias = tuple[Frame, ...]
_MOST_GROUPS = 8
# So many ranks must wait before one look alone names the rank that they wait for.
_MANY = 7
_NUMBERED = re.compile(r"stack (\d+) of (.*)", re.S)
# Classes of leaves that block a host without a peer: one look tells that it stands still.
_TELLING = frozenset({DATA, DISK, NETWORK, LOCK, LEAVING})
_MAYBE = frozenset({GPU, THREADS, MAYBE})
# With several threads in a process, the class that says most about it.
_ORDER = (PEERS, DATA, DISK, NETWORK, LOCK, GPU, THREADS, MAYBE, LEAVING, RUNNING, "")


@dataclass(frozen=True)
class _Stand:
    """Where a process stands: the thread that counts, its stack and what that means."""

    process: Process
    thread: Thread
    frames: Frames
    leaf: Leaf
    kind: str
    gil: bool = False
    """A thread holds the GIL outside of collectives while others of the process wait for it."""
    frozen: bool = False
    """It stood there in an earlier look, too; or its own timer made the dump."""
    moved: bool = False
    """It stood elsewhere in the look before."""

    @property
    def site(self) -> Frames:
        """The user's frames from the call on, innermost first."""
        if self.kind not in (PEERS, LEAVING):
            return self.frames[self.leaf.cut :]
        outer = self.frames[self.leaf.cut + 1 :]
        while outer and (outer[0].native or leaves.kind_of(outer[0]) == THROUGH):
            outer = outer[1:]
        return outer

    @property
    def place(self) -> tuple[str, str, str, int | None]:
        """What makes two processes stand at one place."""
        frame = self.site[0] if self.kind == PEERS and self.site else self.leaf.frame
        if frame is None:
            return (self.kind, self.leaf.op, "", None)
        # Tools shorten paths in different ways.
        file = frame.file.rpartition("/")[2]
        return (self.kind, self.leaf.op, f"{file} {leaves.bare(frame)}", frame.line)


def judge(view: View) -> list[Suspect]:
    """Returns the suspects that the stacks of all processes show; empty without stacks."""
    stands, helpers = _stands(view.stacks)
    if not stands:
        return []
    held = [s for s in stands if s.gil]
    waiting = [s for s in stands if s.kind == PEERS and not s.gil]
    maybe = [s for s in stands if s.kind in _MAYBE and not s.gil]
    outside = [s for s in stands if s.kind != PEERS and s.kind not in _MAYBE and not s.gil]
    victims = waiting or maybe
    unseen = _unseen(view, stands)
    if held and victims:
        return [_gil_held(held, victims, outside)]
    if outside and victims:
        return _awaited(outside, waiting, maybe, unseen, helpers)
    if outside:
        return [_all_outside(outside)]
    return [_all_wait(waiting, maybe, unseen)]


# Where each process stands.


def _stands(stacks: Sequence[Stack]) -> tuple[list[_Stand], list[tuple[str, _Stand]]]:
    """Returns where each rank stands, and where processes stand that are no ranks, with what."""
    looks: dict[Process, dict[int, list[tuple[Thread, Frames]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for stack in stacks:
        for thread in stack.threads:
            looks[thread.process][thread.look].append((thread, stack.frames))
    found: list[_Stand] = []
    helpers: list[tuple[str, _Stand]] = []
    for process in sorted(looks, key=_order):
        dumps = [looks[process][look] for look in sorted(looks[process])]
        told = [(d, s) for d in dumps if (s := _stand(process, d))]
        if any(_has_python(s.frames) for _, s in told):  # a dump of C alone says less
            told = [(d, s) for d, s in told if _has_python(s.frames)]
        if not told:
            continue
        dump, last = told[-1]
        what = next((w for _, frames in dump if (w := leaves.no_rank(frames))), "")
        if what:
            helpers.append((what, last))
            continue
        before = told[-2][1] if len(told) > 1 else None
        same = before is not None and before.place[:3] == last.place[:3]
        found.append(
            replace(
                last,
                frozen=same or last.thread.timed_out,
                moved=before is not None and not same,
            )
        )
    return found, helpers


def _has_python(frames: Frames) -> bool:
    return any(not frame.native for frame in frames)


def _stand(process: Process, dump: Sequence[tuple[Thread, Frames]]) -> _Stand | None:
    """Chooses the thread of a process that counts; None if all its threads are helpers."""
    main = _main(process, dump)
    told: list[_Stand] = []
    for thread, frames in dump:
        is_main = main is not None and thread is main[0]
        if not frames or (not is_main and leaves.is_helper(thread.name, frames)):
            continue
        told.append(_of_thread(process, thread, frames))
    if not told:
        return None
    first = next((s for s in told if main is not None and s.thread is main[0]), None)
    others = sorted((s for s in told if s is not first), key=lambda s: _ORDER.index(s.kind))
    chosen = first or others[0]
    # The main thread waits for a thread of its own: for the autograd's, mostly.
    if first is not None and others and first.kind in (THREADS, LOCK):
        useful = [s for s in others if s.kind == PEERS or first.kind == THREADS]
        chosen = useful[0] if useful else first
    holder = next((s for s in told if s.thread.gil), None)
    wanting = any(
        thread.state == "waits for the GIL" or leaves.wants_gil(frames) for thread, frames in dump
    )
    # Holding it while asleep is enough: no other thread can run.
    asleep = holder is not None and holder.thread.state.startswith("idle")
    if holder is not None and (wanting or asleep) and holder.kind != PEERS:
        return replace(holder, gil=True)
    return chosen


def _of_thread(process: Process, thread: Thread, frames: Frames) -> _Stand:
    leaf = leaves.leaf(frames)
    kind = leaf.kind
    if not kind and thread.gil and "idle" not in thread.state:
        kind = RUNNING
    elif not kind and leaf.frame is not None and leaves.may_wait(leaf.frame):
        kind = MAYBE
    return _Stand(process, thread, frames, leaf, kind)


def _main(process: Process, dump: Sequence[tuple[Thread, Frames]]) -> tuple[Thread, Frames] | None:
    for thread, frames in dump:
        if thread.name == "MainThread" or (thread.id is not None and thread.id == process.pid):
            return thread, frames
    for thread, frames in dump:
        if frames and (
            frames[-1].function in ("<module>", "_start", "__libc_start_main", "main")
            or frames[-1].function.startswith("__libc_start_")
        ):
            return thread, frames
    return dump[0] if len(dump) == 1 else None


def _order(process: Process) -> tuple[float, str, int, str]:
    rank = process.rank if process.rank is not None else float("inf")
    return (rank, process.host or "", process.pid or 0, process.label)


# The rules.


def _gil_held(
    held: Sequence[_Stand], victims: Sequence[_Stand], outside: Sequence[_Stand]
) -> Suspect:
    leader = held[0]
    return Suspect(
        "gil-held",
        _processes(held),
        rule="stacks-gil-held",
        certainty=2 if any(s.frozen for s in held) else 1,
        support=(
            *(Point(f"{_who([s])} holds the GIL in {_place(s)}", s.thread.source) for s in held),
            *_points(victims),
        ),
        against=_points(outside),
        waiting=_processes(victims),
        at=_call(_nearest(held, victims)),
        leaf=leader.leaf.frame,
        leaf_class=RUNNING,
    )


def _awaited(
    outside: Sequence[_Stand],
    waiting: Sequence[_Stand],
    maybe: Sequence[_Stand],
    unseen: tuple[Point, ...],
    helpers: Sequence[tuple[str, _Stand]],
) -> list[Suspect]:
    """Those who stand outside of collectives are awaited by those inside."""
    still = [s for s in outside if not s.moved]
    if not still:
        return [_moving(outside, waiting or maybe)]
    telling = [s for s in still if s.kind in _TELLING]
    turning = [s for s in still if s.kind == RUNNING and s.frozen]
    named = telling + turning or still
    rest = [s for s in outside if s not in named]
    victims = waiting or maybe
    frozen = all(s.frozen for s in named)
    certainty = 0
    if turning and frozen:
        certainty = 1
    elif telling and frozen:
        certainty = 2 if waiting else 1
    elif telling and not rest:
        # In one look at a job that goes on, a few ranks may wait for one that loads its data.
        # Ranks on their way (rest) say that the looks are of such a job.
        gone = all(s.kind == LEAVING for s in named)
        if len(waiting) + len(maybe) >= _MANY or gone:
            certainty = 2 if len(waiting) >= _MANY and not maybe and not unseen else 1
    if any(not s.frames[0].file for s in named):
        certainty = min(certainty, 1)  # only names of functions: a wait may be for peers
    return [
        Suspect(
            _cause(group[0]),
            _processes(group),
            rule="stacks-awaited" if waiting else "stacks-awaited-by-gpu",
            certainty=certainty,
            support=(
                *(Point(f"{_who([s])} stands in {_place(s)}", s.thread.source) for s in group[:4]),
                *_points(victims),
                *_of_workers(group, helpers),
            ),
            against=(
                *_points(rest, "may be on the way: "),
                *(_points(maybe) if waiting else ()),
                *unseen,
                *(_one_look(group) if certainty < 2 else ()),
            ),
            waiting=_processes(victims),
            at=_call(_nearest(group, victims)),
            leaf=group[0].leaf.frame,
            leaf_class=_class(group[0].kind),
        )
        for group in _groups(named)
    ]


def _cause(stand: _Stand) -> Cause:
    return "infinite-loop" if stand.kind == RUNNING else "host-stuck"


def _class(kind: str) -> str:
    return {THREADS: "", LEAVING: "", MAYBE: ""}.get(kind, kind)


def _one_look(group: Sequence[_Stand]) -> tuple[Point, ...]:
    if any(stand.frozen for stand in group):
        return ()
    return (Point("one look only: a second dump must show that it does not move"),)


def _of_workers(
    group: Sequence[_Stand], helpers: Sequence[tuple[str, _Stand]]
) -> tuple[Point, ...]:
    """Returns where the workers of a dataloader stand, which its rank waits for."""
    if group[0].kind != DATA:
        return ()
    hosts = {stand.process.host for stand in group}
    workers = [s for what, s in helpers if what == "dataloader worker" and s.process.host in hosts]
    busy = [s for s in workers if s.kind not in (LOCK, "")]
    return tuple(
        Point(f"a dataloader worker ({_who([s])}) stands in {_place(s)}", s.thread.source)
        for s in busy[:4]
    )


def _moving(outside: Sequence[_Stand], victims: Sequence[_Stand]) -> Suspect:
    return Suspect(
        "moving",
        _processes(outside),
        rule="stacks-moving",
        certainty=0,
        support=(
            Point(f"{_who(outside)}: stood elsewhere in the look before", _source(outside)),
            *_points(victims),
        ),
        waiting=_processes(victims),
        at=_call(_nearest(outside, victims)),
        leaf=outside[0].leaf.frame,
        leaf_class=_class(outside[0].kind),
    )


def _all_outside(outside: Sequence[_Stand]) -> Suspect:
    groups = _groups(outside)
    first = groups[0][0]
    return Suspect(
        "outside",
        (),
        rule="stacks-all-outside",
        certainty=1 if len(outside) > 1 and all(s.frozen for s in outside) else 0,
        support=_points(outside),
        leaf=first.leaf.frame if len(groups) == 1 else None,
        leaf_class=_class(first.kind) if len({s.kind for s in outside}) == 1 else "",
    )


def _all_wait(
    waiting: Sequence[_Stand], maybe: Sequence[_Stand], unseen: tuple[Point, ...]
) -> Suspect:
    """Nobody stands outside: a rank without a stack, a GPU, a network or a circle is to blame."""
    victims = (*waiting, *maybe)
    calls = _calls(waiting)
    jammed = [s for s in maybe if s.leaf.frame and "Launch" in s.leaf.frame.function]
    points = list(_points(victims))
    if jammed:
        points.append(Point(f"{_who(jammed)}: the queue of the GPU is full: victims"))
    elif len(calls) > 1:
        points.append(
            Point(f"the ranks wait in {len(calls)} different calls: perhaps for each other")
        )
    largest = max(_groups(victims), key=len)
    return Suspect(
        "unknown",
        (),
        rule="stacks-all-wait",
        certainty=0,
        support=(*points, *unseen),
        waiting=_processes(victims),
        at=_call(largest),
        leaf_class=GPU if not waiting else PEERS,
    )


def _unseen(view: View, stands: Sequence[_Stand]) -> tuple[Point, ...]:
    """Returns a point that names the ranks without a stack, if the stacks' ranks are known."""
    seen = {s.process.rank for s in stands}
    if None in seen or not view.world:
        return ()
    missing = set(range(view.world)) - {rank for rank in seen if rank is not None}
    return (Point(f"no stack of {ranks_text(missing)}"),) if missing else ()


# Groups and words.


def _groups(stands: Iterable[_Stand]) -> list[list[_Stand]]:
    """Returns processes that stand at one place, the most telling and then largest group first."""
    found: dict[tuple[str, str, str], list[_Stand]] = defaultdict(list)
    for stand in stands:
        found[stand.place[:3]].append(stand)
    groups = sorted(found.values(), key=lambda g: (_ORDER.index(g[0].kind), -len(g)))
    if len(groups) > _MOST_GROUPS:
        last = [stand for group in groups[_MOST_GROUPS - 1 :] for stand in group]
        groups = [*groups[: _MOST_GROUPS - 1], last]
    return groups


def _nearest(culprits: Sequence[_Stand], victims: Sequence[_Stand]) -> list[_Stand]:
    """Returns the group of victims whose path shares most outer frames with a culprit's.

    They came the same way, and wait for it first; the others wait for them, or further on.
    """
    paths = {stand.frames for stand in culprits}
    return max(
        _groups(victims),
        key=lambda g: (max(_shared(path, g[0].frames) for path in paths), len(g)),
    )


def _calls(waiting: Sequence[_Stand]) -> set[tuple[str, str, str, int | None]]:
    """Returns the places of calls. An unknown line is that of any call of the same function."""
    places = {stand.place for stand in waiting}
    known = {place[:3] for place in places if place[3] is not None}
    return {place for place in places if place[3] is not None or place[:3] not in known}


def _shared(one: Frames, other: Frames) -> int:
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if (a.function, a.file) != (b.function, b.file):
            break
        count += 1
        if None not in (a.line, b.line) and a.line != b.line:
            break
    return count


def _call(group: Sequence[_Stand]) -> Call:
    first = group[0]
    frame = first.leaf.frame
    name = first.leaf.op or (frame.function if frame and not frame.native else "a collective")
    return Call(None, name, site=first.site[:16], thread=first.thread.name)


def _processes(stands: Iterable[_Stand]) -> tuple[Process, ...]:
    return tuple(stand.process for stand in stands)


def _points(stands: Sequence[_Stand], before: str = "") -> tuple[Point, ...]:
    return tuple(
        Point(f"{before}{_who(group)} {_doing(group[0])}", _source(group))
        for group in _groups(stands)
    )


def _source(stands: Sequence[_Stand]) -> Source:
    return stands[0].thread.source


def _doing(stand: _Stand) -> str:
    where = f" at {leaves.text(stand.site[0])}" if stand.kind == PEERS and stand.site else ""
    if stand.kind == PEERS:
        return f"in {stand.leaf.op or 'a collective'}{where}"
    return f"in {_place(stand)}"


def _place(stand: _Stand) -> str:
    return leaves.text(stand.leaf.frame) if stand.leaf.frame else "unknown code"


def _who(stands: Sequence[_Stand]) -> str:
    return who([stand.process for stand in stands])


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

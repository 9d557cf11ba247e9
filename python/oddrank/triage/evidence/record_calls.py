"""The calls in oddrank's own records: each process's progress in its groups, and differences."""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from oddrank.errors import OddrankError
from oddrank.finding import grouped
from oddrank.inputs import Notes
from oddrank.trace import collectives, ranks
from oddrank.trace.collectives import op_name
from oddrank.trace.ranks import Rank, Seen
from oddrank.triage import facts, leaves, matching, words
from oddrank.triage.model_frames import PEERS

_MESSAGES = ("send", "recv")
_MOST_COMPARED = 1 << 20  # calls a rank, of the newest, that are compared: all that small jobs hold
_PAUSES = 32  # calls of a process between which the longest pause is looked for

_Key = tuple[str, tuple[int, ...], str]  # name, ranks and back end of a group
_Short = tuple[str, str, int, tuple[int, ...]]


@dataclass(frozen=True)
class Seat:
    """A process with a record. seen: as somebody saw it. history: its newest calls."""

    rank: Rank
    seen: Seen | None
    source: facts.Source
    history: Sequence[collectives.Collective] = ()

    @property
    def process(self) -> facts.Process:
        number = None if self.rank.is_child else self.rank.rank
        return facts.Process(number, self.rank.host or None, self.rank.pid)

    @property
    def gone(self) -> bool:
        return self.seen.state in facts.GONE if self.seen else self.rank.alive is False

    @property
    def time(self) -> float | None:
        """When it was looked at."""
        return self.rank.last if self.seen is None else self.seen.time

    @cached_property
    def callers(self) -> list[ranks.Thread]:
        """The threads that make its calls with others; its main one, if none is known to."""
        made = {each.thread for each in self.history}
        living = [thread for thread in self.rank.threads if thread.stack and not thread.ended]
        main = self.rank.main
        found = [thread for thread in living if thread.tid in made]
        return found or ([main] if main is not None and not main.ended else [])

    @cached_property
    def states(self) -> dict[int, tuple[str, float]]:
        """Thread -> its state in words and seconds of CPU time, when the threads were looked at."""
        states = {t.tid: (t.state or "", t.cpu or 0.0) for t in self.rank.threads}
        states |= self.seen.threads if self.seen is not None else {}
        # Sampling a very deep stack keeps the GIL for long: its thread computes, and needs no lock.
        is_sampled = self.rank.sampled_since is not None
        deep = [t.tid for t in self.rank.threads if t.hidden and (is_sampled or t.sampled)]
        wants_gil = [tid for tid in deep if "futex" in states[tid][0] and states[tid][1]]
        return states | {tid: ("running", states[tid][1]) for tid in wants_gil}


def with_history(seat: Seat, of: int, notes: Notes) -> Seat:
    """Adds its newest calls. of: so many processes are compared."""
    try:
        found = collectives.read(seat.rank.file, seat.rank.content)
    except OddrankError as error:  # removed since
        notes.add(seat.source.file, str(error))
        return seat
    found = _numbered(found[-max(1, _MOST_COMPARED // of) :], seat.rank)
    main, number = seat.rank.main, found[-1].number if found else 0
    leaf = leaves.leaf(frames(main)) if main is not None and main.stack else None
    # No record has such a call.
    if main and leaf and leaf.kind == PEERS and not any(
        c.open or op_name(c.op) == leaf.op for c in found
    ):  # fmt: skip
        op = leaf.op.replace("new_process_group_helper", "new_group") or "a call"
        found.append(
            collectives.Collective(main.tid, "", None, op, 0, "open", None, None, number=number + 1)
        )
    return replace(seat, history=found)


def _numbered(calls: Sequence[collectives.Collective], rank: Rank) -> list[collectives.Collective]:
    """Numbers a call that its thread has not got out of, or failed in, as the next of its group."""
    issued = {_key(group): group.issued or 0 for group in rank.groups}
    blocked = [c for c in calls if c.seq is None and not _is_message(c)
               and (c.open or (c.failed and c is calls[-1]))]  # fmt: skip
    alone = blocked[0] if len(blocked) == 1 else None
    return [c._replace(seq=issued.get(_of(c), 0) + 1) if c is alone else c for c in calls]


def alone(history: Sequence[collectives.Collective]) -> tuple[float | None, float | None]:
    """Returns since when a process is in no call with others, and its longest such time before."""
    times = [(each.begin_ns, each.end_ns) for each in history[-_PAUSES:] if each.state != "issued"]
    if not times or any(each.state == "open" for each in history):
        return None, None
    pauses = [
        begin - end
        for (_, end), (begin, _) in itertools.pairwise(times)
        if begin is not None and end is not None
    ]
    end = times[-1][1]
    return end / 1e9 if end is not None else None, max(pauses, default=0) / 1e9 or None


def missing(chosen: Iterable[Rank]) -> frozenset[tuple[str, str]]:
    """Returns function and file of code that some record's stacks lack: called too often."""
    lowered = (each for rank in chosen for each in rank.lowered)
    return frozenset((each.function, each.file) for each in lowered if each.level == "off")


def frames(
    thread: ranks.Thread, without: frozenset[tuple[str, str]] = frozenset()
) -> tuple[facts.Frame, ...]:
    """Returns a thread's frames, innermost first.

    without: functions to leave out if they call others, so that the stack equals the stacks of
    records that lack these functions.
    """
    stack = [facts.Frame(f.function, f.file, f.line) for f in reversed(thread.stack)]
    return tuple(
        frame
        for i, frame in enumerate(stack)
        if i == 0 or (frame.function, frame.file) not in without
    )


def progress(seats: Sequence[Seat]) -> Iterable[facts.Progress]:
    texts = {_key(group): group.text for seat in seats for group in seat.rank.groups}
    keys = grouped((member, key) for key in texts for member in key[1])
    for seat in seats:
        rank = seat.rank
        own = {_key(group): group for group in rank.groups}
        calls: dict[_Key, list[facts.Call]] = defaultdict(list)
        for each in _numbered(rank.collectives, rank):
            if each.open:
                calls[_of(each)].append(_call(each, _site(seat, each)))
        whole = _is_whole(rank)
        # Groups that others use: its process has issued nothing there.
        absent = [key for key in keys.get(rank.rank, ()) if key not in own] if whole else []
        failed = last_failed(rank)
        # A group with messages alone is not among those that its process began a collective in.
        gave_up = {_of(failed): failed} if failed else {}
        for key in {**own, **calls, **dict.fromkeys(absent), **gave_up}:
            name, ids, backend = key
            yield _progress_of(
                facts.Progress(
                    seat.process, facts.Group(name, ids, texts.get(key, "")), seat.source, backend,
                    whole=whole, time=seat.time, threads=_threads(seat, name, ids),
                ),
                own.get(key), calls.get(key, []), gave_up.get(key),
            )  # fmt: skip


def _key(group: collectives.ProcessGroup) -> _Key:
    return group.name, group.ranks, group.backend


def _of(each: collectives.Collective) -> _Key:
    return each.group, each.ranks, each.backend


def _is_message(each: collectives.Collective) -> bool:
    return op_name(each.op) in _MESSAGES


def _progress_of(
    progress: facts.Progress,
    group: collectives.ProcessGroup | None,
    calls: Sequence[facts.Call],
    failed: collectives.Collective | None,
) -> facts.Progress:
    enqueued = (group.issued if group is not None else None) or 0
    completed = group.ended if group is not None else 0
    if completed is None and progress.backend in facts.ON_HOST:
        completed = 0
    enqueued = max([enqueued, *(c.seq for c in calls if c.seq and c.op not in _MESSAGES)])
    message = failed is not None and _is_message(failed)
    if failed is not None and not calls and (message or failed.seq in (None, enqueued)):
        # Its rank was in this call when it gave up, or lost another rank.
        calls = [_call(failed, ())]
        time = failed.ended or progress.time
        progress = replace(progress, timed_out=True, failed=True, time=time)
    first = min((c.seq for c in calls if c.seq and c.op not in _MESSAGES), default=None)
    if first is not None and completed is not None:
        completed = min(completed, first - 1)
    return replace(
        progress, enqueued=enqueued, completed=completed, open=tuple(calls), open_count=len(calls)
    )


def _is_whole(rank: Rank) -> bool:
    """Returns whether all that is open in the process is open in its record, and nothing else."""
    on_device = any(g.backend not in facts.ON_HOST and g.ended is None for g in rank.groups)
    on_device = on_device or any(c.state == "issued" for c in rank.collectives)
    recorded = rank.records_collectives or bool(rank.groups)
    lost = rank.lost_collectives or rank.lost_groups
    return recorded and not on_device and not lost


def last_failed(rank: Rank) -> collectives.Collective | None:
    """Returns the last operation of the process if it ended with an error."""
    return next((c for c in rank.collectives if not c.open and c.failed), None)


def _call(each: collectives.Collective, site: tuple[facts.Frame, ...]) -> facts.Call:
    started = each.seq is not None and each.backend in facts.ON_HOST
    return facts.Call(
        each.seq, op_name(each.op), each.peer, each.root, each.dtype,
        _sizes(each.bytes_in, each.bytes_out, each.dtype), each.bytes,
        "started" if started else "enqueued", each.began, site,
        nth=each.seq if _is_message(each) else None,
    )  # fmt: skip


def _sizes(inputs: int, outputs: int, dtype: str) -> str:
    """Returns the numbers of elements; inputs and outputs where they differ."""
    if not dtype:
        return ""
    one, other = _elements(inputs, dtype), _elements(outputs, dtype)
    return str(max(one, other)) if one == other or not (one and other) else f"{one} -> {other}"


def _elements(size: int, dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return size // max(1, int(bits[0]) // 8 if bits else 1)


def mismatches(seats: Sequence[Seat]) -> Iterable[facts.Mismatch]:
    issued: dict[_Short, dict[int, dict[matching.Signature, list[int]]]] = {}
    for seat in seats:
        for each in seat.history:
            if each.seq is None or _is_message(each):
                continue
            at = issued.setdefault(_short(_of(each)), {})
            at.setdefault(each.seq, {}).setdefault(_signature(each), []).append(seat.rank.rank)
    by_rank = {seat.rank.rank: seat for seat in seats}
    for key, found in issued.items():
        different = matching.first_difference(found) if key[-1] else None
        if different is not None:
            seq, how, variants = different
            usual = matching.expected(found, seq)
            known = usual is not None and any(usual == signature for signature, _ in variants)
            made = []
            for signature, numbers in variants:
                own = [(seat, c) for seat in map(by_rank.__getitem__, numbers) for c in seat.history
                       if c.seq == seq and _short(_of(c)) == key]  # fmt: skip
                made.append(_variant(own, usual=signature == usual if known else None))
            yield facts.Mismatch(facts.Group(*_of(own[0][1])[:2]), seq, how, tuple(made))


_Way = list[tuple[matching.Signature, collectives.Collective]]


def forks(seats: Sequence[Seat]) -> Iterable[facts.Mismatch]:
    """Finds where ranks first went different ways after the last call that all of a group ended.

    Its number is 0, since the calls may be of several groups: it tells of ranks that wait for each
    other. If there are several groups, the largest counts.
    """
    by_rank = {seat.rank.rank: seat for seat in seats}
    groups = {_short(_key(group)): group for seat in seats for group in seat.rank.groups}
    ended = {s.rank.rank: {_short(_key(g)): g.ended or 0 for g in s.rank.groups} for s in seats}
    keys = [
        _key(group) for group in groups.values()
        if group.ranks and group.backend in facts.ON_HOST and {*group.ranks} <= by_rank.keys()
    ]  # fmt: skip
    for key in sorted(keys, key=lambda key: (-len(key[1]), key)):
        last = min(ended[rank].get(_short(key), 0) for rank in key[1])
        ways = {rank: _since(by_rank[rank].history, key, last) for rank in key[1]}
        steps = {rank: [(step, each.ranks or key[1]) for step, each in way]
                 for rank, way in ways.items() if way is not None}  # fmt: skip
        if len(steps) < len(ways) or (found := matching.fork(steps)) is None:
            continue
        at, how, sides = found
        calls = {rank: (by_rank[rank], way[at][1]) for side in sides for rank in side
                 if (way := ways[rank])}  # fmt: skip
        usual = {rank: _usual(*call) for rank, call in calls.items()}
        made = []
        for side in sides:
            # What a part of a side never did before tells: the rest may have no part in the call
            # of the other side.
            odd = [rank for rank in side if usual[rank] is False]
            members = [calls[rank] for rank in odd or side]
            one, each = _variant(members, usual=usual[members[0][0].rank.rank]), members[0][1]
            of = groups.get(_short(_of(each)))
            group = facts.Group(each.group, each.ranks, of.text if of is not None else "")
            op = words.call_of(replace(one.call, seq=None), group)
            made.append(replace(one, call=replace(one.call, seq=None, op=op, sizes="")))
        if not all(variant.usual for variant in made):  # so the ranks of a pipeline differ
            yield facts.Mismatch(facts.Group(*key[:2]), 0, how, tuple(made), is_fork=True)
        return


def _short(key: _Key) -> _Short:
    """Names a group as well, and does not grow with it."""
    name, ranks, backend = key
    return name, backend, len(ranks), ranks[:1]


def _since(history: Sequence[collectives.Collective], key: _Key, last: int) -> _Way | None:
    """Returns the calls that a process issued after a call; None: its history begins later.

    None, too, if several threads issued them: they have no common order. Leaves out collectives
    that have ended: all of their groups have made them.
    """
    at = (i for i in range(len(history), 0, -1)
          if history[i - 1].seq == last and _short(_of(history[i - 1])) == _short(key))  # fmt: skip
    after = next(at, 0)
    from_start = not last and (not history or history[0].number == 1)
    several = len({each.thread for each in history[max(after - 1, 0) :]}) > 1
    if several or (not after and not from_start):
        return None
    return _way(c for c in history[after:] if c.state != "ended" or c.failed or _is_message(c))


def _way(history: Iterable[collectives.Collective]) -> _Way:
    """Messages that follow one another are one: not all ranks of a pipeline send as many."""
    found: _Way = []
    for each in history:
        what = "message" if _is_message(each) else f"{op_name(each.op)} {_short(_of(each))}"
        if what != "message" or not found or found[-1][0].op != what:
            found.append((matching.Signature(what), each))
    return found


def _usual(seat: Seat, at: collectives.Collective) -> bool | None:
    """Returns whether a process always issued this after the same calls; None: no pattern."""
    before = _way(each for each in seat.history if each.number <= at.number)
    rows = {number: {step: [0]} for number, (step, _) in enumerate(before)}
    usual = matching.expected(rows, len(rows) - 1)
    return None if usual is None else usual == before[-1][0]


def _threads(seat: Seat, group: str, ranks: tuple[int, ...]) -> tuple[str, ...]:
    """Returns the threads that were in calls of a group at the same time, not long ago."""
    # A call on a device has only its begin recorded; messages need no order.
    calls = [
        c for c in seat.history[-_PAUSES:]
        if (c.group, c.ranks) == (group, ranks) and c.state != "issued" and not _is_message(c)
    ]  # fmt: skip
    found = {
        thread
        for one, other in itertools.combinations(calls, 2)
        if one.thread != other.thread and one.begin_ns is not None and other.begin_ns is not None
        and one.begin_ns < (other.end_ns or math.inf) and other.begin_ns < (one.end_ns or math.inf)
        for thread in (one.thread, other.thread)
    }  # fmt: skip
    return tuple(
        f"{thread.name or 'a thread'}" + (f" in {place}" if place else "")
        for thread in seat.rank.threads if thread.tid in found
        for place in [words.own_place(frames(thread))]
    )  # fmt: skip


def _signature(each: collectives.Collective) -> matching.Signature:
    inputs = _elements(each.bytes_in, each.dtype) if each.dtype else None
    outputs = _elements(each.bytes_out, each.dtype) if each.dtype else None
    return matching.Signature(op_name(each.op), each.dtype, inputs, outputs, each.root)


def _variant(
    members: Sequence[tuple[Seat, collectives.Collective]], *, usual: bool | None
) -> facts.Variant:
    """members: the processes that issued a call, with the call as each did."""
    sites = (_site(seat, call) for seat, call in members)
    call = _call(members[0][1], next(filter(None, sites), ()))
    ranks = tuple(sorted(seat.rank.rank for seat, _ in members))
    return facts.Variant(call, ranks, members[0][0].source, usual)


def _site(seat: Seat, call: collectives.Collective) -> tuple[facts.Frame, ...]:
    """Returns where a process stands in a call, or did when the call failed."""
    if not (call.open or call.failed):
        return ()
    sites = [frames(thread) for thread in seat.rank.threads if thread.tid == call.thread]
    if (at := seat.rank.last_at) is not None:
        sites.append((facts.Frame(at.function, at.file, at.line),))
    return next(filter(words.own_place, sites), ())

"""The calls of oddrank's own records: how far each process is in its groups, and who differs."""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from oddrank.errors import OddrankError
from oddrank.inputs import Notes
from oddrank.trace import collectives, ranks
from oddrank.trace.collectives import op_name
from oddrank.trace.ranks import Rank, Seen
from oddrank.triage import facts, matching, words

_MESSAGES = ("send", "recv")
_MOST_COMPARED = 1 << 20  # calls a rank, of the newest, that are compared: all that small jobs hold
_PAUSES = 32  # calls of a process between which the longest pause is looked for

_Key = tuple[str, tuple[int, ...], str]  # name, ranks and back end of a group


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
        if self.seen is None:
            return self.rank.alive is False
        return self.seen.state in facts.GONE

    @property
    def time(self) -> float | None:
        """When it was looked at."""
        return self.rank.last if self.seen is None else self.seen.time


def with_history(seat: Seat, of: int, notes: Notes) -> Seat:
    """Adds its newest calls. of: so many processes are compared."""
    try:
        found = collectives.read(seat.rank.file, seat.rank.content)
    except OddrankError as error:  # removed since
        notes.add(seat.source.file, str(error))
        return seat
    return replace(seat, history=found[-max(1, _MOST_COMPARED // of) :])


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
    """Returns function and file of what is not in the stacks of some record: called too often."""
    lowered = (each for rank in chosen for each in rank.lowered)
    return frozenset((each.function, each.file) for each in lowered if each.level == "off")


def frames(
    thread: ranks.Thread, without: frozenset[tuple[str, str]] = frozenset()
) -> tuple[facts.Frame, ...]:
    """Returns a thread's frames, innermost first.

    without: functions to leave out if they call others, so that the stack equals those of records
    that do not have them.
    """
    stack = [facts.Frame(f.function, f.file, f.line) for f in reversed(thread.stack)]
    return tuple(
        frame
        for i, frame in enumerate(stack)
        if i == 0 or (frame.function, frame.file) not in without
    )


def progress(seats: Sequence[Seat]) -> Iterable[facts.Progress]:
    texts = {_key(group): group.text for seat in seats for group in seat.rank.groups}
    for seat in seats:
        rank = seat.rank
        own = {_key(group): group for group in rank.groups}
        calls = _open_calls(rank)
        whole = _is_whole(rank)
        # Groups that others use: its process has issued nothing there.
        absent = [key for key in texts if rank.rank in key[1] and key not in own] if whole else []
        failed = last_failed(rank)
        # A group with messages alone is not among those that its process began a collective in.
        gave_up = {(failed.group, failed.ranks, failed.backend): failed} if failed else {}
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
    alone = sum(call.op not in _MESSAGES for call in calls) == 1
    calls = [
        replace(call, seq=enqueued + 1)
        if alone and call.seq is None and call.op not in _MESSAGES else call
        for call in calls
    ]  # fmt: skip
    enqueued = max([enqueued, *(c.seq for c in calls if c.seq and c.op not in _MESSAGES)])
    message = failed is not None and op_name(failed.op) in _MESSAGES
    if failed is not None and not calls and (message or failed.seq in (None, enqueued)):
        # Its rank was in this call when it gave up, or lost somebody.
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


def _open_calls(rank: Rank) -> dict[_Key, list[facts.Call]]:
    threads = {thread.tid: thread for thread in rank.threads}
    found: dict[_Key, list[facts.Call]] = defaultdict(list)
    for each in rank.collectives:
        if each.open:
            thread = threads.get(each.thread)
            site = frames(thread) if thread is not None else ()
            found[(each.group, each.ranks, each.backend)].append(_call(each, site))
    return found


def _call(each: collectives.Collective, site: tuple[facts.Frame, ...]) -> facts.Call:
    started = each.seq is not None and each.backend in facts.ON_HOST
    return facts.Call(
        each.seq, op_name(each.op), each.peer, each.root, each.dtype,
        _sizes(each.bytes_in, each.bytes_out, each.dtype), each.bytes,
        "started" if started else "enqueued", each.began, site,
        nth=each.seq if op_name(each.op) in _MESSAGES else None,
    )  # fmt: skip


def _sizes(inputs: int, outputs: int, dtype: str) -> str:
    """Returns the numbers of elements; inputs and outputs where they differ."""
    if not dtype:
        return ""
    return _pair(_elements(inputs, dtype), _elements(outputs, dtype))


def _pair(one: int, other: int) -> str:
    return str(max(one, other)) if one == other or not (one and other) else f"{one} to {other}"


def _elements(size: int, dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return size // max(1, int(bits[0]) // 8 if bits else 1)


def lost(rank: Rank) -> str:
    """Returns the call that failed last: what then exits with a code does so because of it."""
    failed = last_failed(rank)
    return op_name(failed.op) if failed is not None else ""


def mismatches(seats: Sequence[Seat]) -> Iterable[facts.Mismatch]:
    issued: dict[_Key, dict[int, dict[matching.Signature, list[int]]]] = {}
    for seat in seats:
        for each in seat.history:
            if each.seq is None or each.op in _MESSAGES or op_name(each.op) in _MESSAGES:
                continue
            at = issued.setdefault((each.group, each.ranks, each.backend), {})
            at.setdefault(each.seq, {}).setdefault(_signature(each), []).append(seat.rank.rank)
    by_rank = {seat.rank.rank: seat for seat in seats}
    for (name, ids, _), found in issued.items():
        different = matching.first_difference(found) if ids else None
        if different is not None:
            seq, how, variants = different
            group, usual = facts.Group(name, ids), matching.expected(found, seq)
            known = usual is not None and any(usual == signature for signature, _ in variants)
            made = (
                _variant(seq, v, by_rank, group, usual=v[0] == usual if known else None)
                for v in variants
            )
            yield facts.Mismatch(group, seq, how, tuple(made))


def _threads(seat: Seat, group: str, ranks: tuple[int, ...]) -> tuple[str, ...]:
    """Returns the threads that were in calls of a group at the same time, not long ago."""
    # Of a call on a device only the begin is recorded; messages need no order.
    calls = [
        c for c in seat.history[-_PAUSES:]
        if (c.group, c.ranks) == (group, ranks) and c.state != "issued" and c.op not in _MESSAGES
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
    seq: int, variant: tuple[matching.Signature, Collection[int]], by_rank: dict[int, Seat],
    group: facts.Group, *, usual: bool | None,
) -> facts.Variant:  # fmt: skip
    signature, numbers = variant
    first = by_rank[min(numbers)]
    site = next(
        (call.site for key, calls in _open_calls(first.rank).items() for call in calls
         if key[:2] == (group.name, group.ranks) and call.seq == seq),
        (),
    )  # fmt: skip
    sizes = _pair(signature.inputs or 0, signature.outputs or 0) if signature.dtype else ""
    call = facts.Call(
        seq, signature.op, root=signature.root, dtype=signature.dtype, sizes=sizes, site=site
    )
    return facts.Variant(call, tuple(sorted(numbers)), first.source, usual)

"""oddrank's own record files, and the states that `oddrank collect` keeps beside copies."""

import json
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.trace import collectives, processes, ranks, states
from oddrank.trace.ranks import Rank
from oddrank.trace.states import Seen
from oddrank.triage import matching
from oddrank.triage.evidence import Item, Kind, Notes
from oddrank.triage.facts import (
    Activity,
    Call,
    Death,
    Fact,
    Frame,
    Group,
    Identity,
    Mismatch,
    Process,
    Progress,
    Source,
    Stack,
    State,
    Thread,
    Variant,
    World,
)

# c10d's names of operations -> those that users call.
_OPS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "allgather_coalesced": "all_gather_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "recv_any_source": "recv",
}
_MESSAGES = ("send", "recv")
# Back ends that work on the host: the end of each operation is recorded.
_ON_HOST = frozenset({"gloo", "mpi", "ucc"})
_LARGEST_STATES = 64 << 20
# Calls a rank, of the newest, that are compared: all that small jobs hold.
_MOST_COMPARED = 1 << 20
_KERNEL_WORDS = ("running", "stopped", "uninterruptible", "zombie", "dead")


def _sniff(item: Item) -> bool:
    return _is_record(item) or _is_states(item)


def _is_record(item: Item) -> bool:
    magic: bytes = _native.core().TRACE_MAGIC
    return item.head.startswith(magic)


def _is_states(item: Item) -> bool:
    return item.head.startswith(b'{"schema": "%s"' % states.SCHEMA.encode())


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    now = time.time()
    found, refused = _ranks(items)
    names = {str(item.path): item for item in items}
    for path, why in refused.items():
        item = names[str(path)]
        notes.add(item, why.replace(str(path), item.name))
    known = {(s.pid, s.started): s for s in states.look(found)}
    # What was seen at the time of the copy counts: here the process may be gone since.
    known |= {(s.pid, s.started): s for s in _collected(items, notes)}
    chosen = [rank for rank in _newest_run(found, notes) if not rank.is_child]
    sources = {rank.file: Source(names[rank.file].name) for rank in chosen}
    for size in {rank.world for rank in chosen if rank.world > 1}:
        first = next(rank for rank in chosen if rank.world == size)
        yield World(size, sources[first.file])
    seen = {rank.file: known.get((rank.pid, rank.started)) for rank in chosen}
    anybody = any(s is not None and s.state not in ("dead", "zombie") for s in seen.values())
    anybody = anybody or _alone_without_a_word(chosen)
    for rank in chosen:
        source, process = sources[rank.file], _process(rank)
        for note in rank.notes:
            notes.add(source.file, note)
        yield Identity(process, source)
        yield from _activity(rank, seen[rank.file], process, source, now)
        yield from _death(rank, seen[rank.file], process, source, anybody=anybody)
    yield from _progress(chosen, seen, sources)
    yield from _stacks(chosen, seen, sources)
    yield from _mismatches(chosen, sources, notes)


KIND = Kind("records", binary=True, sniff=_sniff, read=_read)


def _ranks(items: Sequence[Item]) -> tuple[list[Rank], dict[Path, str]]:
    files = [item.path for item in items if _is_record(item)]
    found, refused = ranks.read(files, states.LOOK)
    found = [_as_torch_says(rank) for rank in found]
    back = processes.runs_back(found)
    return [
        replace(rank, runs_back=runs) for rank, runs in zip(found, back, strict=True)
    ], refused  # fmt: skip


def _as_torch_says(rank: Rank) -> Rank:
    """Corrects the rank of a process that no launcher told its own: torch's group knows it."""
    group = next((g for g in rank.groups if g.text == "default_pg"), None)
    if group is None or group.own is None or rank.world > 1 or group.size < 2:
        return rank
    return replace(rank, rank=group.own, world=group.size)


def _collected(items: Iterable[Item], notes: Notes) -> Iterable[Seen]:
    for item in items:
        if not _is_states(item) or item.size > _LARGEST_STATES:
            continue
        try:
            yield from states.parse(json.loads(item.path.read_bytes()))
        except (OSError, ValueError, RecursionError) as error:
            notes.add(item, f"its states were not read: {error}")


def _newest_run(found: Sequence[Rank], notes: Notes) -> list[Rank]:
    """Returns the ranks of the newest run of the newest job; a note for each other job."""
    by_job: dict[str, list[Rank]] = defaultdict(list)
    for rank in found:
        by_job[rank.job or str(Path(rank.file).parent.name)].append(rank)
    if not by_job:
        return []
    in_order = sorted(by_job.items(), key=lambda job: _age(job[1]))
    for name, others in in_order[:-1]:
        notes.add(f"job {name}", f"an older job: its {len(others)} records are not used")
    name, newest = in_order[-1]
    earlier = sum(1 for rank in newest if rank.runs_back and not rank.is_child)
    if earlier:
        notes.add(f"job {name}", f"{earlier} records of earlier runs are not used")
    return [rank for rank in newest if rank.runs_back == 0]


def _age(found: Sequence[Rank]) -> tuple[bool, float]:
    return any(rank.alive for rank in found), max(rank.last or 0.0 for rank in found)


def _process(rank: Rank) -> Process:
    return Process(rank.rank, rank.host or None, rank.pid)


def _activity(
    rank: Rank, seen: Seen | None, process: Process, source: Source, now: float
) -> Iterable[Fact]:
    if seen is not None and seen.state in _KERNEL_WORDS:
        state = "dead" if seen.state == "zombie" else seen.state
        yield State(process, state, source, seen.time)  # type: ignore[arg-type]
    elif rank.alive is False:
        yield State(process, "dead", source)
    time_seen = seen.time if seen is not None else None
    if seen is not None and seen.time >= now:
        time_seen = now  # the record was read before the threads were looked at
    main = rank.main
    last = main.last if main is not None and not main.ended else None
    yield Activity(
        process, source, rank.last if last is None else last, rank.step,
        " > ".join(rank.sections), time_seen,
    )  # fmt: skip


def _death(
    rank: Rank, seen: Seen | None, process: Process, source: Source, *, anybody: bool
) -> Iterable[Fact]:
    """Says how it ended. anybody: somebody lived when the states were looked at.

    If nobody did, a record without a word says nothing: somebody may have ended the job since.
    """
    end, site = rank.end, _site(rank)
    if end.raised:
        failed = _failed(rank)
        call = _op(failed.operation) if failed is not None else ""
        text = f"{end.raised} after {call} failed" if call else end.raised
        yield Death(
            process, "exception", source, rank.last, code=end.exit_code, text=text, site=site,
            failed=call,
        )  # fmt: skip
    elif end.how == "exited" and end.exit_code:
        yield Death(process, "exit", source, rank.last, code=end.exit_code, site=site)
    elif seen is not None and seen.signal is not None:
        yield Death(process, "signal", source, None, signal=seen.signal, site=site)
    elif seen is not None and seen.code and end.how == "no word":
        yield Death(process, "exit", source, None, code=seen.code, text="os._exit()", site=site)
    elif _is_gone(rank, seen) and anybody and end.how in ("no word", "ending"):
        if seen is not None and seen.code == 0:
            return
        text = "killed, crashed or called os._exit()"
        yield Death(process, "signal", source, None, text=text, site=site)


def _is_gone(rank: Rank, seen: Seen | None) -> bool:
    return rank.alive is False if seen is None else seen.state in ("dead", "zombie")


def _alone_without_a_word(chosen: Sequence[Rank]) -> bool:
    """Returns whether one rank is gone without a word, and all others lost it in a call."""
    silent = [rank for rank in chosen if rank.end.how == "no word"]
    return len(silent) == 1 and all(_failed(rank) for rank in chosen if rank is not silent[0])


def _site(rank: Rank) -> tuple[Frame, ...]:
    if rank.main is not None and rank.main.stack and not rank.end.raised:
        return _frames(rank.main)
    at = rank.last_at
    return (Frame(at.function, at.file, at.line),) if at is not None else ()


def _frames(thread: ranks.Thread) -> tuple[Frame, ...]:
    return tuple(Frame(f.function, f.file, f.line) for f in reversed(thread.stack))


_Key = tuple[str, tuple[int, ...], str]  # name, ranks and back end of a group


def _progress(
    chosen: Sequence[Rank], seen: Mapping[str, Seen | None], sources: Mapping[str, Source]
) -> Iterable[Progress]:
    texts: dict[_Key, str] = {}
    members: dict[_Key, list[int]] = defaultdict(list)
    for rank in chosen:
        for group in rank.groups:
            key = (group.name, group.ranks, group.backend)
            texts[key] = group.text
            members[key].append(rank.rank)
    for rank in chosen:
        at = seen[rank.file]
        own = {(g.name, g.ranks, g.backend): g for g in rank.groups}
        calls = _open_calls(rank)
        whole = _is_whole(rank)
        # Groups that others use: its process has issued nothing there.
        absent = [key for key in texts if rank.rank in key[1] and key not in own] if whole else []
        failed = _failed(rank)
        # A group with messages alone is not among those that its process began a collective in.
        gave_up = [(failed.group, failed.ranks, failed.backend)] if failed is not None else []
        for key in {**own, **calls, **dict.fromkeys(absent), **dict.fromkeys(gave_up)}:
            name, ids, backend = key
            yield _progress_of(
                Progress(
                    _process(rank), Group(name, ids, texts.get(key, "")), sources[rank.file],
                    backend, whole=whole, time=at.time if at is not None else rank.last,
                ),
                own.get(key), calls.get(key, []), failed, key,
            )  # fmt: skip


def _progress_of(
    progress: Progress,
    group: collectives.ProcessGroup | None,
    calls: Sequence[Call],
    failed: ranks.Collective | None,
    key: _Key,
) -> Progress:
    ends_known = key[2] in _ON_HOST or (group is not None and group.ended is not None)
    enqueued = group.issued if group is not None else None
    completed = group.ended if group is not None else None
    if group is None or ends_known:
        enqueued, completed = enqueued or 0, completed or 0
    elif enqueued is None:
        enqueued = 0
    numbered = [call for call in calls if call.op not in _MESSAGES]
    calls = [
        replace(call, seq=enqueued + 1)
        if call.seq is None and call.op not in _MESSAGES and len(numbered) == 1 else call
        for call in calls
    ]  # fmt: skip
    enqueued = max([enqueued, *(c.seq for c in calls if c.seq and c.op not in _MESSAGES)])
    is_failed = failed is not None and (failed.group, failed.ranks, failed.backend) == key
    if failed is not None and is_failed and not calls and _is_last(failed, enqueued):
        # Its rank was in this call when it gave up, or lost somebody.
        calls = [_call(failed, ())]
        progress = replace(progress, timed_out=True, time=failed.ended or progress.time)
    first = min((c.seq for c in calls if c.seq and c.op not in _MESSAGES), default=None)
    if first is not None and completed is not None:
        completed = min(completed, first - 1)
    return replace(
        progress, enqueued=enqueued, completed=completed, open=tuple(calls), open_count=len(calls)
    )


def _is_last(failed: ranks.Collective, enqueued: int) -> bool:
    return _op(failed.operation) in _MESSAGES or failed.sequence in (None, enqueued)


def _is_whole(rank: Rank) -> bool:
    """Returns whether all that is open in the process is open in its record, and nothing else."""
    on_device = any(g.backend not in _ON_HOST and g.ended is None for g in rank.groups)
    on_device = on_device or any(c.state == "issued" for c in rank.collectives)
    recorded = rank.records_collectives or bool(rank.groups)
    return recorded and not on_device and not rank.lost_collectives


def _failed(rank: Rank) -> ranks.Collective | None:
    """Returns the last operation of the process if it ended with an error."""
    return next((c for c in rank.collectives if not c.open and c.failed), None)


def _open_calls(rank: Rank) -> dict[_Key, list[Call]]:
    threads = {thread.tid: thread for thread in rank.threads}
    found: dict[_Key, list[Call]] = defaultdict(list)
    for each in rank.collectives:
        if each.open:
            thread = threads.get(each.tid)
            site = _frames(thread) if thread is not None else ()
            call = replace(_call(each, site), thread=thread.name if thread is not None else "")
            found[(each.group, each.ranks, each.backend)].append(call)
    return found


def _call(each: ranks.Collective, site: tuple[Frame, ...]) -> Call:
    started = each.sequence is not None and each.backend in _ON_HOST
    return Call(
        each.sequence, _op(each.operation), each.peer, each.root, each.dtype,
        _sizes(each.bytes_in, each.bytes_out, each.dtype), each.bytes,
        "started" if started else "enqueued", each.began, site,
    )  # fmt: skip


def _op(recorded: str) -> str:
    name = recorded.rstrip("_")
    return _OPS.get(name, _OPS.get(f"_{name}", name))


def _sizes(inputs: int, outputs: int, dtype: str) -> str:
    """Returns the numbers of elements; inputs and outputs where they differ."""
    if not dtype:
        return ""
    one, other = _elements(inputs, dtype), _elements(outputs, dtype)
    return str(max(one, other)) if one == other or not (one and other) else f"{one} to {other}"


def _elements(size: int, dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return size // max(1, int(bits[0]) // 8 if bits else 1)


def _stacks(
    chosen: Sequence[Rank], seen: Mapping[str, Seen | None], sources: Mapping[str, Source]
) -> Iterable[Stack]:
    found: dict[tuple[Frame, ...], list[Thread]] = defaultdict(list)
    for rank in chosen:
        at = seen[rank.file]
        for thread in rank.threads:
            if thread.ended or not thread.stack:
                continue
            state, cpu = thread.state, thread.cpu
            if at is not None and thread.tid in at.threads:
                state, cpu = at.threads[thread.tid]
            found[_frames(thread)].append(
                Thread(
                    _process(rank), thread.name, thread.tid, state or "", None,
                    sources[rank.file], at.time if at is not None else rank.last, cpu,
                )
            )  # fmt: skip
    for frames, threads in found.items():
        yield Stack(frames, tuple(threads))


def _mismatches(
    chosen: Sequence[Rank], sources: Mapping[str, Source], notes: Notes
) -> Iterable[Mismatch]:
    issued: dict[_Key, dict[int, dict[matching.Signature, list[int]]]] = {}
    last = max(1, _MOST_COMPARED // max(1, len(chosen)))
    for rank in chosen:
        try:
            history = collectives.read(rank.file)[-last:]
        except OddrankError as error:  # removed since
            notes.add(sources[rank.file].file, str(error))
            continue
        for each in history:
            if each.seq is None or each.op in _MESSAGES or _op(each.op) in _MESSAGES:
                continue
            at = issued.setdefault((each.group, each.ranks, each.backend), {})
            at.setdefault(each.seq, {}).setdefault(_signature(each), []).append(rank.rank)
    by_rank = {rank.rank: rank for rank in chosen}
    for (name, ids, _), found in issued.items():
        different = matching.first_difference(found) if ids else None
        if different is not None:
            seq, how, variants = different
            group = Group(name, ids)
            yield Mismatch(
                group, seq, how, tuple(_variant(seq, v, by_rank, sources, group) for v in variants)
            )


def _signature(each: collectives.Collective) -> matching.Signature:
    inputs = _elements(each.bytes_in, each.dtype) if each.dtype else None
    outputs = _elements(each.bytes_out, each.dtype) if each.dtype else None
    return matching.Signature(_op(each.op), each.dtype, inputs, outputs, each.root)


def _variant(
    seq: int,
    variant: tuple[matching.Signature, Collection[int]],
    by_rank: Mapping[int, Rank],
    sources: Mapping[str, Source],
    group: Group,
) -> Variant:
    signature, numbers = variant
    first = by_rank[min(numbers)]
    site = next(
        (call.site for key, calls in _open_calls(first).items() for call in calls
         if key[:2] == (group.name, group.ranks) and call.seq == seq),
        (),
    )  # fmt: skip
    one, other = signature.inputs or 0, signature.outputs or 0
    sizes = str(max(one, other)) if one == other or not (one and other) else f"{one} to {other}"
    call = Call(
        seq, signature.op, root=signature.root, dtype=signature.dtype,
        sizes=sizes if signature.dtype else "", site=site,
    )  # fmt: skip
    return Variant(call, tuple(sorted(numbers)), sources[first.file])

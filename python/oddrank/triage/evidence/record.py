"""oddrank's own record files, and the states that `oddrank collect` keeps beside copies."""

import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from oddrank import _native
from oddrank.inputs import Item, Notes, unix_time
from oddrank.pauses import Pause
from oddrank.trace import collectives, processes, ranks, states
from oddrank.trace.ranks import Rank
from oddrank.trace.states import Seen
from oddrank.triage.evidence import Kind, of_json, record_calls
from oddrank.triage.facts import (
    Activity,
    Child,
    Death,
    Fact,
    Frame,
    Identity,
    Paused,
    Process,
    Source,
    Stack,
    State,
    Thread,
    Trouble,
    World,
)

# The recorder's thread that samples.
_WANTS_GIL = Frame("PyGILState_Ensure", "", None, True)
_SPAWNED = re.compile(r"ProcessExitedException: process (\d{1,5}) terminated with signal (SIG\w+)")
_KERNEL_WORDS = ("running", "stopped", "uninterruptible", "zombie", "dead")


def _sniff(item: Item) -> bool:
    return _is_record(item) or _is_states(item)


def _is_record(item: Item) -> bool:
    magic: bytes = _native.core().TRACE_MAGIC
    return item.head.startswith(magic)


def _is_states(item: Item) -> bool:
    return item.head.startswith(b'{"schema": "%s"' % states.SCHEMA.encode())


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    names = {str(item.path): item.name for item in items}
    found, refused = ranks.read([item.path for item in items if _is_record(item)])
    for path, why in refused.items():
        name = names[str(path)]
        notes.add(name, why.replace(str(path), name))
    kept = [(seen, Source(item.name)) for item in items if _is_states(item)
            for seen in of_json(item, notes, _states)]  # fmt: skip
    return _facts(found, kept, names, notes)


def held(records: Mapping[str, bytes], seen: Iterable[Seen], notes: Notes) -> list[Fact]:
    """Returns the facts of records in memory, by name, and of how their processes were seen."""
    found, refused = ranks.read([Path(name) for name in records], contents=records)
    for path, why in refused.items():
        notes.add(str(path), why)
    names = {name: name for name in records}
    return list(_facts(found, [(one, Source(states.NAME)) for one in seen], names, notes))


def _facts(
    found: list[Rank], kept: list[tuple[Seen, Source]], names: Mapping[str, str], notes: Notes
) -> Iterable[Fact]:
    """kept: processes as somebody saw them. names: of files, as the user sees them."""
    now = time.time()
    # Several files may have a process: who saw it alive, or how it ended, knows more.
    kept.sort(key=lambda one: (_is_unexplained(one[0]), one[0].time))
    collected = {(s.pid, s.started): s for s, _ in reversed(kept) if s.state != states.SILENT}
    as_recorded = found
    found = _ranks(found, collected)
    known = {(s.pid, s.started): s for s in states.look(found)}
    # What was seen at the time of the copy counts: here the process may be gone since.
    known |= collected
    newest = _newest_run(found, notes)
    chosen = [rank for rank in newest if not rank.is_child]
    stopped = _paused_children(newest, known)
    sources = {rank.file: Source(names[rank.file]) for rank in chosen}
    for size in {rank.world for rank in chosen if rank.world > 1}:
        first = next(rank for rank in chosen if rank.world == size)
        yield World(size, sources[first.file])
    seen = {rank.file: known.get((rank.pid, rank.started)) for rank in chosen}
    anybody = any(s is not None and s.state not in ("dead", "zombie") for s in seen.values())
    anybody = anybody or _alone_without_a_word(chosen)
    histories = record_calls.histories(chosen, sources, notes)
    killed = _killed(as_recorded, chosen)
    for rank in chosen:
        source, process = sources[rank.file], record_calls.process_of(rank)
        for note in rank.notes:
            notes.add(source.file, note, lost=False)
        yield Identity(process, source)
        history = histories.get(rank.file, [])
        yield from _activity(rank, seen[rank.file], process, source, now=now, history=history)
        # A rank whose worker stands in a breakpoint waits for it.
        own = rank if rank.pause else replace(rank, pause=stopped.get((rank.host, rank.rank)))
        yield from _pause(own, seen[rank.file], process, source, now=now)
        gone = state.ended if (state := seen[rank.file]) is not None else None
        if by := killed.get(rank.file):
            state = Seen(rank.rank, rank.host, rank.pid, rank.started, "dead", now, by)
        for death in _death(rank, state, process, source, anybody=anybody):
            yield replace(death, gone=gone)
    known_ranks = {rank.rank for rank in chosen}
    recorded = {(rank.pid, rank.started) for rank in found}
    for lost, source in {one.rank: (one, source) for one, source in kept}.values():
        if lost.rank not in known_ranks and (lost.pid, lost.started) not in recorded:
            yield from _unrecorded(lost, source)
    yield from record_calls.progress(chosen, seen, sources, histories)
    yield from _stacks(chosen, seen, sources, record_calls.process_of)
    yield from _workers(newest, known, {r.file: Source(names[r.file]) for r in newest})
    yield from record_calls.mismatches(chosen, sources, histories)


KIND = Kind("records", binary=True, sniff=_sniff, read=_read)


def _ranks(found: list[Rank], collected: Collection[tuple[int, int]]) -> list[Rank]:
    """Completes the ranks. Looks at threads only of processes whose states were not collected."""
    if any((rank.pid, rank.started) not in collected for rank in found):
        found = ranks.look_at(found, states.LOOK)
    found = _as_torch_says(found)
    back = processes.runs_back(found)
    return [
        replace(rank, runs_back=runs, last=unix_time(rank.last))
        for rank, runs in zip(found, back, strict=True)
    ]


def _as_torch_says(found: Sequence[Rank]) -> list[Rank]:
    """Corrects the ranks of processes that no launcher told theirs: torch's default group knows it.

    A process alone whose children are the ranks, as of mp.spawn, is none itself. Of groups of
    several sizes, which it started one after the other, the newest is the job.
    """
    made: list[Rank] = []
    launched: dict[tuple[str, str], Rank] = {}  # the child that began last
    for rank in found:
        own = next((g for g in rank.groups if g.text == "default_pg"), None)
        if own is not None and own.own is not None and own.size > 1 and rank.world == 1:
            was_child = rank.is_child
            rank = replace(rank, rank=own.own, world=own.size, is_child=False)  # noqa: PLW2901
            if was_child:
                key = rank.host, rank.job
                launched[key] = max(launched.get(key, rank), rank, key=lambda r: r.started)
        made.append(rank)
    sizes = {key: newest.world for key, newest in launched.items()}
    return [r for r in made if r.is_child or r.world == sizes.get((r.host, r.job), r.world)]


def _killed(found: Sequence[Rank], chosen: Sequence[Rank]) -> dict[str, int]:
    """Returns the signals, by file, that ended ranks of mp.spawn: what it raised in their parent.

    It has asked how they ended, and ended the others: nobody else can tell.
    """
    parents = [rank for rank in found if not rank.is_child and rank.world == 1]
    parent = max(parents, key=lambda rank: rank.started, default=None)
    told = _SPAWNED.search(parent.end.words) if parent is not None else None
    if parent is None or told is None:
        return {}
    children = {r.file for r in found if r.is_child and r.started >= parent.started}
    spawned = sorted((r.started, r.pid, r.file) for r in chosen if r.file in children)
    by = next((int(one) for one in signal.Signals if one.name == told[2]), 0)
    return {spawned[int(told[1])][2]: by} if by and int(told[1]) < len(spawned) else {}


def _unrecorded(lost: Seen, source: Source) -> Iterable[Fact]:
    """Says what is known of a process without a record: nothing, if it only runs."""
    process = Process(lost.rank, lost.host, lost.pid)
    if lost.state == states.SILENT:
        text = "the guard beside it says nothing any more"
        yield Identity(process, source)
        yield Trouble("unreachable", text, source, lost.host, time=lost.time, pid=lost.pid)
    elif lost.state in ("zombie", "dead") and (lost.signal or lost.code):
        kind: Literal["signal", "exit"] = "signal" if lost.signal else "exit"
        yield Identity(process, source)
        yield Death(process, kind, source, lost.ended, signal=lost.signal, code=lost.code)


def _states(content: Any) -> list[Seen]:
    found = states.parse(content)
    if any(unix_time(each.time) is None for each in found):
        raise ValueError("it has times that cannot be")
    return found


def _is_unexplained(seen: Seen) -> bool:
    return seen.state in ("dead", "zombie") and seen.signal is None and seen.code is None


def _newest_run(found: Sequence[Rank], notes: Notes) -> list[Rank]:
    """Returns the ranks of the newest run of the newest job; a note for each other job."""
    by_job: dict[str, list[Rank]] = defaultdict(list)
    for rank in found:
        by_job[rank.job or str(Path(rank.file).parent.name)].append(rank)
    if not by_job:
        return []
    in_order = sorted(by_job.items(), key=lambda job: _age(job[1]))
    for name, others in in_order[:-1]:
        notes.add(
            f"job {name}", f"an older job: its {len(others)} records are not used", lost=False
        )
    name, newest = in_order[-1]
    earlier = sum(1 for rank in newest if rank.runs_back and not rank.is_child)
    if earlier:
        notes.add(f"job {name}", f"{earlier} records of earlier runs are not used", lost=False)
    return [rank for rank in newest if rank.runs_back == 0]


def _age(found: Sequence[Rank]) -> tuple[bool, float]:
    return any(rank.alive for rank in found), max(rank.last or 0.0 for rank in found)


def _activity(
    rank: Rank,
    seen: Seen | None,
    process: Process,
    source: Source,
    *,
    now: float,
    history: Sequence[collectives.Collective],
) -> Iterable[Fact]:
    if seen is not None and seen.state in _KERNEL_WORDS:
        state = "dead" if seen.state == "zombie" else seen.state
        yield State(process, state, source, seen.time)  # type: ignore[arg-type]
    elif rank.alive is False:
        yield State(process, "dead", source)
    # A record is read before the threads are looked at.
    time_seen = min(seen.time, now) if seen is not None else None
    main = rank.main
    last = main.last if main is not None and not main.ended else None
    yield Activity(
        process, source, rank.last if last is None else last, rank.step,
        " > ".join(rank.sections), time_seen, *record_calls.alone(history),
        runs=_runs_unseen(rank, seen), raised=rank.thread_raised,
    )  # fmt: skip


def _paused_children(
    newest: Iterable[Rank], known: Mapping[tuple[int, int], Seen]
) -> dict[tuple[str, int], Pause]:
    """Returns the breakpoints in which processes of ranks stand, by the rank's host and number."""
    return {
        (child.host, child.rank): child.pause
        for child in newest
        if child.is_child and child.pause is not None
        if not _is_gone(child, known.get((child.pid, child.started)))
    }


def _pause(
    rank: Rank, seen: Seen | None, process: Process, source: Source, *, now: float
) -> Iterable[Fact]:
    if rank.pause is not None:
        gone = _is_gone(rank, seen)
        last = rank.last if gone or seen is None else min(seen.time, now)
        yield Paused(process, rank.pause, source, last, gone)


def _runs_unseen(rank: Rank, seen: Seen | None) -> bool:
    """Returns whether the main thread runs in a function whose lines are not recorded any more."""
    main = rank.main
    if main is None or main.ended or not main.stack:
        return False
    state = main.state
    if seen is not None and main.tid in seen.threads:
        state, _ = seen.threads[main.tid]
    last = main.stack[-1]
    lowered = {(each.function, each.file) for each in rank.lowered}
    unseen = rank.sampled_since is not None or (last.function, last.file) in lowered
    return state == "running" and unseen


def _death(
    rank: Rank, seen: Seen | None, process: Process, source: Source, *, anybody: bool
) -> Iterable[Death]:
    """Says how it ended. anybody: somebody lived when the states were looked at.

    If nobody did, a record without a word says nothing: somebody may have ended the job since.
    """
    end, call = rank.end, record_calls.lost(rank)
    ended = seen.ended if seen is not None else None
    died = partial(Death, process, source=source, site=_site(rank))
    if end.raised:
        text = f"{end.raised} after {call} failed" if call else end.words
        yield died("exception", time=rank.last, code=end.exit_code, text=text, failed=call)
    elif end.how == "exited" and end.exit_code:
        yield died("exit", time=rank.last, code=end.exit_code, failed=call)
    elif seen is not None and seen.signal == signal.SIGKILL and seen.oom_kills:
        text = f"oom_kill of its cgroup has grown by {seen.oom_kills}"
        yield died("oom", time=ended, signal=seen.signal, text=text)
    elif seen is not None and seen.signal is not None:
        yield died("signal", time=ended, signal=seen.signal)
    elif seen is not None and seen.code and end.how == "no word":
        yield died("exit", time=ended, code=seen.code, text="os._exit() or exec", failed=call)
    elif end.how == "exited" or (seen is not None and seen.code == 0):
        yield died("exit", time=ended or rank.last, code=0)
    elif _is_gone(rank, seen) and anybody and end.how in ("no word", "ending"):
        yield died("signal", time=ended, text="killed, crashed or called os._exit()")


def _is_gone(rank: Rank, seen: Seen | None) -> bool:
    return rank.alive is False if seen is None else seen.state in ("dead", "zombie")


def _alone_without_a_word(chosen: Sequence[Rank]) -> bool:
    """Returns whether one rank is gone without a word, and all others lost it in a call."""
    silent = [rank for rank in chosen if rank.end.how == "no word"]
    return len(silent) == 1 and all(
        record_calls.last_failed(rank) for rank in chosen if rank is not silent[0]
    )


def _site(rank: Rank) -> tuple[Frame, ...]:
    if rank.main is not None and rank.main.stack and not rank.end.raised:
        return record_calls.frames(rank.main)
    at = rank.last_at
    return (Frame(at.function, at.file, at.line),) if at is not None else ()


def _workers(
    newest: Sequence[Rank],
    known: Mapping[tuple[int, int], Seen],
    sources: Mapping[str, Source],
) -> Iterable[Fact]:
    """Tells where processes stand that ranks have started: workers that load data, mostly."""
    seen = {rank.file: known.get((rank.pid, rank.started)) for rank in newest if rank.is_child}
    living = [rank for rank in newest if rank.is_child and not _is_gone(rank, seen[rank.file])]
    # Below ranks that a script has started, a worker bears the script's number and world.
    parents = {(r.host, r.rank, r.world): r for r in newest if not r.is_child}
    started = {(rank.host, rank.pid): rank for rank in newest if not rank.is_child}
    for rank in living:
        parent = started.get((rank.host, rank.parent))
        if parent or (parent := parents.get((rank.host, rank.rank, rank.world))):
            yield Child(_worker(rank), record_calls.process_of(parent), sources[rank.file])
    yield from _stacks(living, seen, sources, _worker)


def _worker(rank: Rank) -> Process:
    return Process(None, rank.host or None, rank.pid)


def _stacks(
    chosen: Sequence[Rank],
    seen: Mapping[str, Seen | None],
    sources: Mapping[str, Source],
    process_of: Callable[[Rank], Process],
) -> Iterable[Stack]:
    found: dict[tuple[Frame, ...], list[Thread]] = defaultdict(list)
    missing = record_calls.missing(chosen)
    for rank in chosen:
        at = seen[rank.file]
        time_seen = at.time if at is not None else rank.last
        living = [thread for thread in rank.threads if not thread.ended]
        states_of = {thread.tid: (thread.state or "", thread.cpu) for thread in living}
        states_of |= at.threads if at is not None else {}
        running = [thread for thread in living if states_of[thread.tid][0] == "running"]
        for thread in living:
            if not thread.stack:
                continue
            state, cpu = states_of[thread.tid]
            # The only thread that runs, or that there is, must be the one that keeps the GIL.
            gil = None if rank.gil_wanted is None else (running or living) == [thread]
            found[record_calls.frames(thread, missing)].append(
                Thread(
                    process_of(rank), thread.name, thread.tid, state, gil, sources[rank.file],
                    time_seen, cpu,
                )
            )  # fmt: skip
        if rank.gil_wanted is not None:
            found[(_WANTS_GIL,)].append(
                Thread(process_of(rank), "oddrank", state="waits for the GIL",
                       source=sources[rank.file], time=time_seen)
            )  # fmt: skip
    for frames, threads in found.items():
        yield Stack(frames, tuple(threads))

"""oddrank's own record files, and the states that `oddrank collect` keeps beside copies."""

import re
import shlex
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from oddrank import _native
from oddrank.finding import grouped
from oddrank.inputs import Item, Notes, unix_time
from oddrank.trace import ranks
from oddrank.trace.collectives import op_name
from oddrank.trace.ranks import Rank, Seen
from oddrank.triage import facts
from oddrank.triage.evidence import Kind, of_json, record_calls, signal_number
from oddrank.triage.evidence.record_calls import Seat

# The recorder's thread that samples.
_WANTS_GIL = facts.Frame("PyGILState_Ensure", "", None, True)
_SPAWNED = re.compile(r"ProcessExitedException: process (\d{1,5}) terminated with signal (SIG\w+)")
OTHER = "oddrank triage "  # before a job that is not judged here
_CPU = 0.2  # of a core: a process that wakes up now and then, to log or to look, uses less
_CAUGHT = "an exception that its launcher caught"
_STARTS = 60.0  # seconds: ranks of one run may end before the last of them begins to record
_GIL_SECONDS = 1.0  # a thread keeps the GIL, if the recorder has waited for it so long
_KERNEL_WORDS = ("running", "stopped", "uninterruptible", "zombie", "dead")


def _is_record(item: Item) -> bool:
    magic: bytes = _native.core().TRACE_MAGIC
    return item.head.startswith(magic)


def _is_states(item: Item) -> bool:
    return item.head.startswith(b'{"schema": "%s"' % ranks.STATES_SCHEMA.encode())


def _read(items: Sequence[Item], notes: Notes) -> Iterable[facts.Fact]:
    names = {str(item.path): item.name for item in items}
    found, refused = ranks.read([item.path for item in items if _is_record(item)])
    for path, why in refused.items():
        name = names[str(path)]
        notes.add(name, why.replace(str(path), name))
    kept = [(seen, facts.Source(item.name)) for item in items if _is_states(item)
            for seen in of_json(item, notes, _states)]  # fmt: skip
    return _facts(found, kept, names, notes)


def held(records: Mapping[str, bytes], seen: Iterable[Seen], notes: Notes) -> list[facts.Fact]:
    """Returns the facts of records in memory, by name, and of how their processes were seen."""
    found, refused = ranks.read([Path(name) for name in records], contents=records)
    for path, why in refused.items():
        notes.add(str(path), why)
    kept = [(one, facts.Source(ranks.STATES_FILE)) for one in seen]
    return list(_facts(found, kept, {name: name for name in records}, notes))


def _facts(
    found: list[Rank], kept: list[tuple[Seen, facts.Source]], names: Mapping[str, str], notes: Notes
) -> Iterable[facts.Fact]:
    """kept: processes as guards or `collect` saw them. names: of files, as the user sees them."""
    now = time.time()
    # Several files may have a process: one that saw it alive, or how it ended, knows more.
    kept.sort(key=lambda one: (
        one[0].state in facts.GONE and one[0].signal is None and one[0].code is None, one[0].time
    ))  # fmt: skip
    collected = {(s.pid, s.started): s for s, _ in reversed(kept) if s.state != ranks.SILENT}
    as_recorded, found = found, _ranks(found, collected)
    # States at the time of the copy count: the process may be gone by now.
    known = {(s.pid, s.started): s for s in ranks.seen_now(found)} | collected
    every = [
        Seat(rank, known.get((rank.pid, rank.started)), facts.Source(names[rank.file]))
        for rank in _newest_run(found, names, notes)
    ]
    chosen = [seat for seat in every if not seat.rank.is_child]
    seats = [record_calls.with_history(seat, len(chosen), notes) for seat in chosen]
    children = [seat for seat in every if seat.rank.is_child and not seat.gone]
    stopped = {(s.rank.host, s.rank.rank): s.rank.pause for s in children if s.rank.pause}
    for size, source in {s.rank.world: s.source for s in reversed(seats)}.items():
        if size > 1:
            yield facts.World(size, source)
    anybody = any(s.seen is not None and not s.gone for s in seats)
    # One rank is gone without a word, and all others lost it in a call.
    spoke = [seat.rank for seat in seats if seat.rank.end.how != "no word"]
    alone = len(spoke) + 1 == len(seats) and all(map(record_calls.last_failed, spoke))
    anybody = anybody or alone
    begun = any(c.state != "open" and not c.failed for seat in seats for c in seat.history)
    killed = _killed(as_recorded, [seat.rank for seat in seats])
    for seat in seats:
        rank, seen, process, source = seat.rank, seat.seen, seat.process, seat.source
        for note in rank.notes:
            notes.add(source.file, note, lost=False)
        yield facts.Identity(process, source, world=0 if begun else rank.world)
        yield from _activity(seat, now)
        # A rank whose worker stands in a breakpoint waits for it.
        if pause := rank.pause or stopped.get((rank.host, rank.rank)):
            last = rank.last if seat.gone or seen is None else min(seen.time, now)
            yield facts.Paused(process, pause, source, last, seat.gone)
        if by := killed.get(rank.file):
            dead = Seen(rank.rank, rank.host, rank.pid, rank.started, "dead", now, by)
            seat = replace(seat, seen=dead)  # noqa: PLW2901
        for death in _death(seat, anybody=anybody):
            yield replace(death, gone=seen.ended if seen is not None else None)
    known_ranks = {seat.rank.rank for seat in seats}
    recorded = {(rank.pid, rank.started) for rank in found}
    begun_at = min((s.rank.begin_ns for s in seats if s.rank.begin_ns), default=0) / 1e9
    for lost, source in {one.rank: (one, source) for one, source in kept}.values():
        of_this_run = (lost.ended or lost.time) >= begun_at - _STARTS
        if (
            lost.rank not in known_ranks
            and (lost.pid, lost.started) not in recorded
            and of_this_run
        ):
            yield from _unrecorded(lost, source)
    yield from record_calls.progress(seats)
    yield from _stacks(seats)
    # Below ranks that a script has started, a worker bears the script's number and world.
    parents = {(s.rank.host, s.rank.rank, s.rank.world): s for s in seats}
    started = {(s.rank.host, s.rank.pid): s for s in seats}
    for child in children:
        host, rank = child.rank.host, child.rank
        parent = started.get((host, rank.parent)) or parents.get((host, rank.rank, rank.world))
        if parent:
            yield facts.Child(child.process, parent.process, child.source)
    yield from _stacks(children)
    yield from [*record_calls.mismatches(seats)] or record_calls.forks(seats)


KIND = Kind("records", True, lambda item: _is_record(item) or _is_states(item), _read)


def _ranks(found: list[Rank], collected: Mapping[tuple[int, int], Seen]) -> list[Rank]:
    """Completes the ranks. Looks at threads only of processes whose states were not collected."""
    if any((rank.pid, rank.started) not in collected for rank in found):
        found = ranks.look_at(found, ranks.LOOK)
    found = _as_torch_says(found)
    living = {key for key, seen in collected.items() if seen.state not in facts.GONE}
    back = ranks.runs_back([
        replace(rank, alive=rank.alive or (rank.pid, rank.started) in living) for rank in found
    ])  # fmt: skip
    return [
        replace(rank, runs_back=runs, last=unix_time(rank.last),
                gil_wanted=_gil_wanted(rank, collected.get((rank.pid, rank.started))))
        for rank, runs in zip(found, back, strict=True)
    ]  # fmt: skip


def _gil_wanted(rank: Rank, seen: Seen | None) -> float | None:
    """Returns since when its GIL is wanted, if for long. Of a copy, until its process was seen."""
    if seen is None or seen.state in facts.GONE or rank.gil_asked is None:
        return rank.gil_wanted
    return rank.gil_asked if seen.time - rank.gil_asked >= _GIL_SECONDS else None


def _as_torch_says(found: Sequence[Rank]) -> list[Rank]:
    """Corrects the ranks of processes without one from a launcher: torch's default group knows it.

    A lone process whose children are the ranks, as in mp.spawn, is no rank itself. If it started
    groups of several sizes one after the other, the newest is the job.
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
    """Returns the signals, by file, that ended ranks of mp.spawn, as their parent raised it.

    Only the parent knows how a rank ended: it reaped it, and ended the others.
    """
    parents = [rank for rank in found if not rank.is_child and rank.world == 1]
    parent = max(parents, key=lambda rank: rank.started, default=None)
    told = _SPAWNED.search(parent.end.words) if parent is not None else None
    if parent is None or told is None:
        return {}
    children = {r.file for r in found if r.is_child and r.started >= parent.started}
    spawned = sorted((r.started, r.pid, r.file) for r in chosen if r.file in children)
    by = signal_number(told[2])
    return {spawned[int(told[1])][2]: by} if by and int(told[1]) < len(spawned) else {}


def _unrecorded(lost: Seen, source: facts.Source) -> Iterable[facts.Fact]:
    """Yields facts on a process without a record; none if it only runs."""
    process = facts.Process(lost.rank, lost.host, lost.pid)
    if lost.state == ranks.SILENT:
        text = "the guard beside it says nothing any more"
        yield facts.Identity(process, source)
        yield facts.Trouble("unreachable", text, source, lost.host, time=lost.time,
                            pids=(lost.pid,))  # fmt: skip
    elif lost.state in ("zombie", "dead") and (lost.signal or lost.code is not None):
        kind: Literal["signal", "exit"] = "signal" if lost.signal else "exit"
        yield facts.Identity(process, source)
        yield facts.Death(process, kind, source, lost.ended, signal=lost.signal, code=lost.code)


def _states(content: Any) -> list[Seen]:
    found = ranks.parse_states(content)
    if any(unix_time(each.time) is None for each in found):
        raise ValueError("it has times that cannot be")
    return found


def _newest_run(found: Sequence[Rank], names: Mapping[str, str], notes: Notes) -> list[Rank]:
    """Returns the ranks of the newest run of the newest job; a note for each other job."""
    by_job = grouped((rank.job or str(Path(rank.file).parent.name), rank) for rank in found)
    if not by_job:
        return []
    in_order = sorted(
        by_job.items(),
        key=lambda job: (any(r.alive for r in job[1]), max(r.last or 0.0 for r in job[1])),
    )
    *older, (name, newest) = in_order
    older.append((name, [rank for rank in newest if rank.runs_back and not rank.is_child]))
    current = [rank for rank in newest if rank.runs_back == 0]
    for name, others in filter(itemgetter(1), older):
        why = f"an older run: its {len(others)} records are not used"
        folder = _folder(others, names)
        if folder.is_dir() and folder != _folder(current, names):
            why += f": {OTHER}{shlex.quote(str(folder))}"
        notes.add(f"job {name}", why, lost=False)
    return current


def _folder(found: Sequence[Rank], names: Mapping[str, str]) -> Path:
    """Returns the job's folder, which all hosts share, or else the folder of its first record."""
    folder = Path(names[found[0].file]).parent
    return next((one for one in (folder, *folder.parents) if one.name == found[0].job), folder)


def _activity(seat: Seat, now: float) -> Iterable[facts.Fact]:
    rank, seen = seat.rank, seat.seen
    if seen is not None and seen.state in _KERNEL_WORDS:
        state = "dead" if seen.state == "zombie" else seen.state
        yield facts.State(seat.process, state, seat.source, seen.time)  # type: ignore[arg-type]
    elif rank.alive is False:
        yield facts.State(seat.process, "dead", seat.source)
    # A record is read before the threads are looked at.
    time_seen = min(seen.time, now) if seen is not None else None
    callers, states = seat.callers, seat.states
    last = max((t.last for t in callers if t.last is not None), default=rank.last)
    others = [states[t.tid] for t in rank.threads if not t.ended and t not in callers]
    used = sum(cpu for _, cpu in others)
    yield facts.Activity(
        seat.process, seat.source, last, rank.step, time_seen, *record_calls.alone(seat.history),
        beside=used >= _CPU * ranks.LOOK or any(state == "running" for state, _ in others),
        turns=any(states[t.tid][0] == "running" for t in callers),
        raised=rank.thread_raised, over=_way_out(rank)[0] == "return",
        runs=any(states[t.tid][0] == "running" and _is_unseen(rank, t) for t in callers),
        began=None if rank.begin_ns is None else rank.begin_ns / 1e9, job=rank.job,
    )  # fmt: skip


def _way_out(rank: Rank) -> tuple[str, ranks.Frame | None]:
    """Returns how a training in a thread of its own ended, and where: its process may live on."""
    first = next(iter(rank.threads), None)
    ended = first is not None and first.ended and first.tid != rank.pid
    if not ended or rank.end.how != "no word" or any(c.open or c.failed for c in rank.collectives):
        return "", None
    return ranks.way_out(rank, rank.threads[0])


def _is_unseen(rank: Rank, thread: ranks.Thread | None) -> bool:
    """Returns whether a thread stands in a function whose lines are only sampled."""
    if thread is None or thread.ended or not thread.stack:
        return False
    last = thread.stack[-1]
    lowered = {(each.function, each.file) for each in rank.lowered}
    return rank.sampled_since is not None or (last.function, last.file) in lowered


def _death(seat: Seat, *, anybody: bool) -> Iterable[facts.Death]:
    """Yields how a process ended. anybody: some rank lived when the states were looked at.

    If none did, a record without a last word proves nothing: the job may have been ended since.
    """
    rank, seen = seat.rank, seat.seen
    # An exit with a code after a failed call follows from that call.
    end, call = rank.end, op_name(failed.op) if (failed := record_calls.last_failed(rank)) else ""
    ended = seen.ended if seen is not None else None
    left = unix_time(end.time) or rank.last
    calls = any(call.open or call.failed for call in rank.collectives)
    over = end.how in ("ending", "exited") and not (end.raised or end.exit_code or calls)
    thread = next(iter(seat.callers), None)
    sampled = _is_unseen(rank, thread) and not end.raised
    site = _site(rank, thread)
    died = partial(facts.Death, seat.process, source=seat.source, site=site, sampled=sampled)
    if end.raised:
        text = f"{end.raised} after {call} failed" if call else end.words
        yield died("exception", time=left, code=end.exit_code, text=text, failed=call)
    elif end.how == "exited" and end.exit_code:
        yield died("exit", time=left, code=end.exit_code, failed=call)
    elif seen is not None and seen.signal == signal.SIGKILL and seen.oom_kills:
        text = f"oom_kill of its cgroup has grown by {seen.oom_kills}"
        yield died("oom", time=ended, signal=seen.signal, text=text)
    elif seen is not None and seen.signal is not None:
        yield died("signal", time=ended, signal=seen.signal)
    elif (out := _way_out(rank))[0] == "unwind" and (at := out[1]):
        where = (facts.Frame(at.function, at.file, at.line),)
        yield died("exception", time=rank.threads[0].last, site=where, text=_CAUGHT)
    elif seen is not None and seen.code and end.how == "no word":
        yield died("exit", time=ended, code=seen.code, text="os._exit() or exec", failed=call)
    elif end.how == "exited" or (seen is not None and seen.code == 0):
        yield died("exit", time=ended or rank.last, code=0)
    elif seat.gone and anybody and not over and end.how in ("no word", "ending"):
        yield died("signal", time=ended, text="killed, crashed or called os._exit()")
    if over:
        yield died("exit", code=0, went_on=True)


def _site(rank: Rank, thread: ranks.Thread | None) -> tuple[facts.Frame, ...]:
    if thread is not None and thread.stack and not rank.end.raised:
        return record_calls.frames(thread)
    at = rank.last_at
    return (facts.Frame(at.function, at.file, at.line),) if at is not None else ()


def _stacks(seats: Sequence[Seat]) -> Iterable[facts.Stack]:
    found: dict[tuple[facts.Frame, ...], list[facts.Thread]] = defaultdict(list)
    missing = record_calls.missing(seat.rank for seat in seats)
    for seat in seats:
        rank, process, source = seat.rank, seat.process, seat.source
        living = [thread for thread in rank.threads if not thread.ended]
        states = {tid: state for tid, (state, _) in seat.states.items()}
        running = [thread for thread in living if states[thread.tid] == "running"]
        for thread in (each for each in living if each.stack):
            # The only thread that runs, or that there is, must be the one that keeps the GIL.
            gil = (running or living) == [thread] if rank.gil_wanted else None
            found[record_calls.frames(thread, missing)].append(
                facts.Thread(process, thread.name, thread.tid, states[thread.tid], gil, source,
                             seat.time, trains=thread in seat.callers)
            )  # fmt: skip
        if rank.gil_wanted:
            waits = facts.Thread(process, "oddrank", state="waits for the GIL", source=source,
                           time=seat.time)  # fmt: skip
            found[(_WANTS_GIL,)].append(waits)
    for frames, threads in found.items():
        yield facts.Stack(frames, tuple(threads))

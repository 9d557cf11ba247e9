"""Shows where every rank is: groups ranks at the same place, the least progress first."""

import shlex
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from oddrank.finding import counted, duration, fold, group_name, grouped, ranks_text, size_text
from oddrank.pauses import Pause
from oddrank.trace.collectives import Collective, op_name
from oddrank.trace.ranks import HELD, Frame, Rank, Thread, short

_MOST_OFF = 3  # functions to name that are not in the stacks
_UNKNOWN = "  (line unknown: it runs too often to be recorded)"
_CLOSEST = ("lines", "calls", "where", "off")

Group: TypeAlias = list[Rank]
"""Ranks in the same step and collective with the same stacks, all alive or all dead."""


def groups(ranks: Iterable[Rank], *, all_threads: bool = False) -> list[Group]:
    """Groups ranks, and sorts the groups: least progress first, then the smallest group.

    Progress is the step, then the number of collectives issued. This is no judgement. Child
    processes (DataLoader workers) are included with `all_threads` only.
    """
    shown = (rank for rank in ranks if all_threads or not rank.is_child)
    found = grouped((_place(rank, all_threads), rank) for rank in shown)
    made = [sorted(group, key=lambda r: (r.rank, r.pid)) for group in found.values()]
    return sorted(made, key=lambda g: (_progress(g[0]), len(g), g[0].rank, g[0].pid))


def text(
    ranks: Sequence[Rank], job: str, *, all_threads: bool = False, chosen: bool = False,
    now: float | None = None,
) -> list[str]:  # fmt: skip
    """Returns the lines of `trace where`.

    chosen: the user asked for these ranks, not for the job: the heading counts no ranks. Child
    processes are shown with `all_threads`, or if there is nothing else.
    """
    now = time.time() if now is None else now
    all_threads = all_threads or all(rank.is_child for rank in ranks)
    lines = [f"job {job}" if chosen else _heading(ranks, job)]
    for group in groups(ranks, all_threads=all_threads):
        lines += ["", _title(group, now), *_group_lines(group, all_threads, now)]
    hidden = [] if all_threads else _hidden(ranks)
    return [*lines, *(["", f"not shown: {', '.join(hidden)} (--all-threads)"] if hidden else [])]


def shown_threads(rank: Rank, all_threads: bool) -> list[Thread]:
    """Returns the main thread and threads in a collective; all, ended ones too, if asked."""
    if all_threads:
        return list(rank.threads)
    busy = {rank.pid, *(each.thread for each in rank.collectives if each.open)}
    return [thread for thread in rank.threads if thread.tid in busy and not thread.ended]


def _place(rank: Rank, all_threads: bool) -> Any:
    return (
        rank.alive, rank.end, rank.thread_raised, rank.notes, rank.is_child, rank.step,
        tuple((each.op, each.group, each.seq, each.open) for each in rank.collectives[:1]),
        rank.sections, rank.pause and (rank.pause.kind, rank.pause.what), rank.gil_wanted is None,
        # A stopped rank is in no group of sleeping ranks.
        tuple(
            (t.name, t.stack, t.hidden, t.state if t.state in HELD else None)
            for t in shown_threads(rank, all_threads)
        ),
        rank.last_at,
    )  # fmt: skip


def _progress(rank: Rank) -> tuple[int, int]:
    issued = max((each.number for each in rank.collectives), default=-1)
    return (-1 if rank.step is None else rank.step, issued)


def _heading(ranks: Sequence[Rank], job: str) -> str:
    parents = [rank for rank in ranks if not rank.is_child]
    world = max((rank.world for rank in parents), default=0)
    numbers = {rank.rank for rank in parents}
    alive = sum(1 for rank in parents if rank.alive)
    unknown = sum(1 for rank in parents if rank.alive is None)
    heading = f"job {job}: {len(numbers)} of {world} ranks, {alive} alive"
    children = sum(1 for rank in ranks if rank.is_child and rank.alive)
    if children and not alive:
        heading += f" ({counted(children, 'child process', 'es')} still alive)"
    if unknown:
        heading += f", {unknown} on another machine (alive or not)"
    missing = _gaps(sorted(numbers), world)
    if missing:
        heading += f"; no record here of {missing}"
    return heading


def _gaps(numbers: list[int], world: int) -> str:
    """Returns the numbers missing below `world`, as `0-5,7`. A file may claim any `world`."""
    gaps, following = [], 0
    for number in [*numbers, world]:
        if number > following:
            last = number - 1
            gaps.append(str(last) if last == following else f"{following}-{last}")
        following = max(following, number + 1)
    return ",".join(gaps[:20]) + (" and more" if len(gaps) > 20 else "")


def _title(group: Group, now: float) -> str:
    first = group[0]
    hosts = sorted({rank.host for rank in group})
    where = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
    who = ranks_text(rank.rank for rank in group)
    if first.is_child:
        who = f"{counted(len(group), 'child process', 'es')} of {who}"
    if len(hosts) == 1:
        where += f", pid{'' if len(group) == 1 else 's'} {fold((rank.pid for rank in group), ', ')}"
    step = "no step yet" if first.step is None else f"step {first.step}"
    return f"{who} ({where}): {step}, {_life(group, now)}"


def _life(ranks: Sequence[Rank], now: float) -> str:
    last = max((rank.last for rank in ranks if rank.last is not None), default=None)
    first = ranks[0]
    if not first.alive:
        life = _end(first) if first.alive is False else "not known here whether it is alive"
        return f"{life}, last event at {_clock(last)}" if last is not None else life
    life = "alive"
    if first.end.how in {"ending", "exited"}:
        what = f"raised {first.end.words}" if first.end.raised else "ended"
        still = "Python is shutting down" if first.end.how == "ending" else "libraries clean up"
        life = f"alive, but its script has {what} and {still}"
    if last is None:
        return f"{life}, nothing recorded yet"
    return f"{life}, last event {duration(now - last, 1)} ago"


def _end(rank: Rank) -> str:
    """Returns how a dead process ended, as far as its record tells."""
    end = rank.end
    code = "" if end.exit_code is None else f"exit code {end.exit_code}"
    if end.raised:
        return f"dead: raised {end.words}{f' ({code})' if code else ''}"
    if end.how == "exited":
        return f"dead: ended with {code}" if end.exit_code else "finished"
    if end.how == "ending":
        # The forked children of multiprocessing never call exit().
        return "finished" if rank.is_child else "dead: killed or crashed after its script's end"
    return "dead: killed, crashed or os._exit()" if end.how == "no word" else "dead"


def _group_lines(group: Group, all_threads: bool, now: float) -> Iterable[str]:
    first = group[0]
    for note in first.notes:
        yield f"  note: {note}"
    if first.thread_raised:
        yield f"  {first.thread_raised}"
    for collective in first.collectives:
        yield f"  {_collective(first, collective, now if first.alive else None)}"
    if first.sections:
        yield f"  in section {' > '.join(first.sections)}"
    if first.pause is not None:
        yield f"  {first.pause}{on_purpose(first.pause, now if first.alive else None)}"
    if first.gil_wanted is not None:
        yield f"  {gil_text(first.gil_wanted, now if first.alive else None)}"
    threads = shown_threads(first, all_threads)
    for i, thread in enumerate(threads):
        name = thread.name or "a thread without a name"
        yield f"  {name}{_states(group, i, all_threads)}{_sampled(thread, first, now)}"
        if thread.stack or first.alive or thread.tid != first.pid:
            yield from _stack_lines(thread)
            continue
        ran = ""
        if first.last_at is not None:
            place, function = _frame(first.last_at)
            ran = f": last at {place} in {function}"
        yield f"    no code is running any more{ran}"
        yield f"    last lines: oddrank trace tail {shlex.quote(first.file)}"
    if not threads:
        yield "  no thread has been recorded"
    yield from _missing_lines(first)


def _missing_lines(rank: Rank) -> Iterable[str]:
    """Yields a line on the functions that run too often to be recorded."""
    if rank.sampled_since is not None:
        yield f"  only sampled since {_clock(rank.sampled_since)}, called too often: all code"
        return
    off = sorted(
        (each for each in rank.lowered if each.level == "off"),
        key=lambda each: (_CLOSEST.index(each.wanted), -(each.since or 0)),
    )
    if not off:
        return
    names = [f"{each.function} ({short(each.file)}:{each.line})" for each in off[:_MOST_OFF]]
    more = [f"{len(off) - _MOST_OFF} more"] if len(off) > _MOST_OFF else []
    since = min((each.since for each in off if each.since is not None), default=None)
    yield f"  only sampled since {_clock(since)}, called too often: {', '.join([*names, *more])}"


def call_text(rank: Rank, collective: Collective) -> str:
    """Returns a collective as all commands name it: all_reduce 16 of default_pg (ranks 0-3)."""
    name = (collective.group, collective.ranks)
    title = next((g.title for g in rank.groups if (g.name, g.ranks) == name), collective.group)
    number = "" if collective.seq is None else f" {collective.seq}"
    return f"{op_name(collective.op)}{number} of {group_name(title, collective.ranks)}"


def _collective(rank: Rank, collective: Collective, now: float | None) -> str:
    """Describes a collective. now: None if the process is not known to be alive."""
    name = call_text(rank, collective)
    if collective.bytes:
        name += f", {size_text(collective.bytes)}"
    if collective.open:
        if collective.began is None:
            return f"in {name}"
        if now is None:
            return f"in {name}, since {_clock(collective.began)}"
        return f"in {name} for {duration(now - collective.began, 1)}"
    return f"last collective: {name}"


def on_purpose(pause: Pause, now: float | None) -> str:
    """Says that a pause is meant, and for how long it lasts, or since when it did.

    now: None if the process is not known to be alive: then UTC, with the date. A report may be read
    in another zone, and a pause may last for days.
    """
    if pause.since is None:
        return ", on purpose"
    if now is None:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(pause.since))
        return f", on purpose, since {since}"
    return f", on purpose, for {duration(now - pause.since, 1)}"


def gil_text(since: float, now: float | None) -> str:
    """Says that a thread keeps the GIL. now: None if the process is not known to be alive."""
    when = f"since {_clock(since)}" if now is None else f"for {duration(now - since, 1)}"
    return f"GIL held {when}"


def _sampled(thread: Thread, rank: Rank, now: float) -> str:
    if thread.sampled is None:
        return ""
    if rank.alive:
        return f", sampled {duration(now - thread.sampled, 1)} ago"
    return f", sampled at {_clock(thread.sampled)}"


def _states(group: Group, i: int, all_threads: bool) -> str:
    """Describes the kernel's states and the CPU time of thread `i` in all ranks of the group."""
    threads = [shown_threads(rank, all_threads)[i] for rank in group]
    states = sorted({thread.state for thread in threads if thread.state is not None})
    if not states:
        return ""
    cpu = max(thread.cpu or 0.0 for thread in threads)
    used = f", {cpu:.2f} s of CPU time during this check" if cpu else ", using no CPU"
    return f" ({' or '.join(states)}{used})"


def _stack_lines(thread: Thread) -> Iterable[str]:
    if not thread.stack:
        yield "    no recorded code is running"
    places = [_frame(frame) for frame in thread.stack]
    width = min(max((len(place) for place, _ in places), default=0), 60)
    for i, (place, function) in enumerate(places):
        if thread.hidden and i == len(places) - 1:
            yield f"    ... {thread.hidden} more frames"
        yield f"    {place:<{width}}  {function}{_UNKNOWN if thread.stack[i].level else ''}"
    if thread.torn:
        yield "    (the stack changed while it was read: frames of different moments)"


def _frame(frame: Frame) -> tuple[str, str]:
    line = "" if frame.line is None else f":{frame.line}"
    return f"{short(frame.file)}{line}", frame.function


def _hidden(ranks: Sequence[Rank]) -> list[str]:
    parents = [rank for rank in ranks if not rank.is_child]
    threads = sum(
        1 for r in parents for t in r.threads if not t.ended and t not in shown_threads(r, False)
    )
    children = len(ranks) - len(parents)
    return [
        counted(count, what, plural)
        for count, what, plural in (
            (threads, "other thread", "s"), (children, "child process", "es")
        )
        if count
    ]  # fmt: skip


def _clock(seconds: float | None) -> str:
    return "?" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))

"""Chooses what the page of --html shows of what was read: waits, hosts, calls, stacks, events."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from oddrank.finding import fold, grouped
from oddrank.page import Lane, Note, Parts, Table
from oddrank.triage import leaves, timeline, tree, words
from oddrank.triage.facts import Process, Progress, ranks
from oddrank.triage.suspects import Suspect
from oddrank.triage.view import View

# Ranks that all differ would fill the page: the JSON of the sources has the other rows.
_MOST_ROWS = 60
_MOST_EVENTS = 500
_LANES = 20
"""Ranks that began and ended within this part of the time shown are drawn as one."""


def parts(view: View, suspects: Sequence[Suspect], jobs: int) -> Parts:
    """Returns the parts of the page for a judged view. jobs: the number of jobs it is of."""
    happened = timeline.timeline(view.own_facts)
    events = timeline.lines(happened, _MOST_EVENTS)
    if happened:
        zone = " (the line names no zone)" if happened[0].wall else ""
        events.insert(0, f"times in UTC{zone}")
    if jobs > 1:  # ranks of several jobs have the same numbers
        told = f"The files tell of {jobs} jobs or moments, each judged alone."
        return Parts(no_ranks=f"{told} Give those of one to see its ranks.", events=events)
    heard = view.heard
    size = view.world or max(heard, default=-1) + 1
    culprits = {rank for suspect in suspects for rank in ranks(suspect.processes)}
    waiting = {rank for suspect in suspects for rank in ranks(suspect.waiting)} - culprits
    doings = grouped((text, process) for process, text in _doings(view))
    return Parts(
        waiting=tuple(sorted(waiting)),
        absent=tuple(rank for rank in range(size) if rank not in heard),
        hosts={p.rank: p.host for p in view.processes if p.rank is not None and p.host},
        notes=[Note(text, ranks(of)) for text, of in doings.items() if ranks(of)],
        tree=tree.tree(view.stacks),
        lanes=_lanes(view, culprits),
        events=events,
        tables=tuple(_how_far(view, suspects, culprits)),
    )


def _doings(view: View) -> Iterator[tuple[Process, str]]:
    """Yields each process, and a text for each fact known of it."""
    for process in view.processes:
        if process.pid is not None:
            yield process, f"pid {process.pid}"
    for process, state in view.states.items():
        yield process, f"its process is {state.state}"
    for process, activity in view.activities.items():
        if activity.step is not None:
            yield process, f"in step {activity.step}"
    for progress in view.all_progress:
        name = words.group_text(progress.group) or "a group"
        done = f"completed {progress.completed}, " if progress.completed is not None else ""
        yield progress.process, f"{done}is in {_open(progress) or 'no call'} of {name}"
    for death in view.deaths:
        yield death.process, timeline.death_text(death)
    for stack in view.stacks:
        if place := words.place_text(leaves.leaf(stack.frames).frame):
            for thread in stack.threads:
                if thread.name in ("", "MainThread"):
                    yield thread.process, f"its main thread is in {place}"


def _open(progress: Progress) -> str:
    """Returns the oldest call that a rank is in, and how many others are open."""
    if not progress.open:
        return ""
    more = max(progress.open_count, len(progress.open)) - 1
    return words.call_text(progress.open[0]) + (f" and {more} more" if more > 0 else "")


def _lanes(view: View, odd: set[int]) -> list[Lane]:
    """Returns what ranks did last; ranks that did the same at about the same time have one lane."""
    entered = {
        progress.process: (
            call.since,
            f"in {words.call_of(call, progress.group)}",
            progress.time,
        )
        for progress in view.all_progress
        for call in progress.open[:1]
        if call.since is not None and not progress.wall
    }
    died = {death.process: death for death in view.deaths if death.time and not death.wall}
    found = []
    for process in view.processes:
        activity, death = view.activities.get(process), died.get(process)
        pause = view.pauses[process].pause if process in view.pauses else None
        begin, text, end = entered.get(process, (None, "", None))
        if activity is not None and activity.seen is not None:
            end = activity.seen
        if death is not None:
            end = death.time
        if process.rank is None or end is None:
            continue
        kind = "waits" if text else "fine"
        if not text and activity is not None:
            begin, text = activity.alone or activity.last, "in no call with other ranks"
        if pause is not None and pause.since is not None:
            begin, text = pause.since, str(pause)
        if activity is not None and activity.step is not None:
            text = f"step {activity.step}: {text}"
        if death is not None:
            text += f", then {timeline.death_text(death)}"
        kind = "odd" if process.rank in odd else kind
        if begin is not None:
            begin = min(begin, end)
            found.append(Lane((process.rank,), text, kind, begin, end, death is not None))
    whole = max((one.end for one in found), default=0.0)
    share = (whole - min((one.begin for one in found), default=0.0)) / _LANES or 1.0
    alike: dict[tuple[bool, str, str, bool, tuple[int, int]], list[Lane]] = defaultdict(list)
    for one in found:
        near = (round((whole - one.begin) / share), round((whole - one.end) / share))
        alike[one.kind != "odd", one.text, one.kind, one.died, near].append(one)
    return [
        Lane(tuple(sorted(one.ranks[0] for one in same)), same[0].text, same[0].kind,
             min(one.begin for one in same), max(one.end for one in same), same[0].died)
        for _, same in sorted(alike.items(), key=lambda row: (row[0][0], len(row[1])))
    ]  # fmt: skip


def _how_far(view: View, suspects: Sequence[Suspect], odd: set[int]) -> Iterator[Table]:
    """Yields the table of one group: of the first suspect's, else of the largest.

    A row holds all ranks that completed the same and are in the same call: odd ranks, then those
    behind first.
    """
    named = next((s.group for s in suspects if s.group in view.progress), None)
    group = named or max(view.progress, key=lambda g: len(view.progress[g]), default=None)
    if group is None:
        return
    alike: dict[tuple[bool, int, str], list[int]] = defaultdict(list)
    entered: dict[str, dict[int, float]] = defaultdict(dict)
    for rank, progress in view.progress[group].items():
        call = _open(progress)
        done = -1 if progress.completed is None else progress.completed
        alike[rank not in odd, done, call].append(rank)
        if progress.open and progress.open[0].since is not None:
            entered[call][rank] = progress.open[0].since
    rows = []
    for (_, done, call), same in sorted(alike.items()):
        first = min(entered[call].values(), default=0.0)
        times = sorted(entered[call][rank] - first for rank in same if rank in entered[call])
        when = f"+{times[0]:.1f}" if times else ""
        when += f" to {times[-1]:.1f}" if times and times[-1] - times[0] >= 0.1 else ""
        rows.append((fold(same, ", "), "?" if done < 0 else str(done), call or "no call", when))
    if len(rows) > _MOST_ROWS:
        rows[_MOST_ROWS:] = [(f"and {len(rows) - _MOST_ROWS} more rows", "", "", "")]
    title = f"How far the ranks of {words.group_text(group)} have come"
    columns = "ranks", "completed calls", "is in", "entered: seconds after the first"
    yield Table(title, columns, tuple(rows), odd=sum(not others for others, *_ in alike))

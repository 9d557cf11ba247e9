"""Texts about one rank: how its test ended, where it stood, its stacks, its errors on a line."""

import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from oddrank.run.marker.one_rank import Rank
from oddrank.triage.facts import Fact, Stack

_MOST_FRAMES = 40  # of a stack
_HIDDEN = ("/_pytest/", "/pluggy/", "/oddrank/run/marker/", "<frozen ", "<string>")
# faulthandler's; the name is new in Python 3.14
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+(?: \[(.*)\])? \(most recent call")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def outcome(rank: Rank) -> str:
    """Returns how its test ended, as a verb; "ran" if it has not ended."""
    last = {phase["when"]: phase for phase in rank.phases if phase["whole"]}
    phase = next((p for p in last.values() if p["outcome"] != "passed"), last.get("call"))
    if phase is None:
        return "ran"
    if phase["outcome"] == "skipped" and phase["xfail"] is None:
        return f"was skipped ({phase['text']})"
    if phase["outcome"] == "failed" and phase["when"] != "call":
        return f"failed in {phase['when']}"
    return {"passed": "passed", "skipped": "failed as expected"}.get(phase["outcome"], "failed")


def state(rank: Rank) -> str:
    """Returns what became of a rank, for a table."""
    if rank.lost is not None:
        return "did not run the test"
    ended = outcome(rank)
    if rank.was_running:
        where = place(rank)
        what = "had not ended" if ended == "ran" else f"{ended}, and ran on"
        return f"{what}: {where}" if where else what
    if rank.has_died and rank.code is not None:
        how = f"exit code {rank.code}"
        if rank.code < 0:
            with suppress(ValueError):
                how = signal.Signals(-rank.code).name
        return f"ended by {how}" if ended == "ran" else f"{ended}, then ended by {how}"
    return "waited for the others" if ended == "ran" else ended


def place(rank: Rank) -> str:
    """Returns where a rank stood: the innermost frame of its main thread, or else of another."""
    for name, frames in reversed(list(dumped(rank.dump))):
        found = _FRAME.match(frames[0]) if frames else None
        if found:
            thread = "" if name == "MainThread" else f"{name} "
            return f"{thread}in {found[3]} ({Path(found[1]).name}:{found[2]})"
    return ""


def errors(rank: Rank) -> Iterator[tuple[str, str]]:
    """Yields each failure that a rank reported: as one line, and as its whole text."""
    if rank.lost is not None:
        yield rank.lost["text"], rank.lost.get("more", "")
    for phase in rank.phases:
        if phase["outcome"] == "failed" and (phase["error"] or not phase["whole"]):
            line = phase["error"].partition("\n")[0] or "a subtest failed"
            if phase["frames"]:
                name, file, number = phase["frames"][-1]
                line += f" at {name} ({Path(file).name}:{number})"
            yield line, phase["text"]


def stacks(rank: Rank, facts: Iterable[Fact]) -> Iterator[tuple[str, list[str]]]:
    """Yields name and frames of each thread: as it wrote them itself, else from its record."""
    own = [(name, frames) for name, frames in dumped(rank.dump) if frames]
    yield from own
    recorded = [fact for fact in facts if isinstance(fact, Stack)] if not own else []
    for stack in recorded:
        for thread in stack.threads:
            if thread.process.rank == rank.number:
                frames = [f'  File "{f.file}", line {f.line} in {f.function}' for f in stack.frames]
                yield f"{thread.name} ({thread.state or 'as recorded'})", _shown(frames)


def dumped(text: str) -> Iterator[tuple[str, list[str]]]:
    """Parses what faulthandler wrote. The main thread comes last; pytest's frames are left out."""
    threads: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        found = _THREAD.match(line)
        if found:
            threads.append((f"thread {found[1]}" if found[1] else "a thread", []))
        elif threads and line.startswith("  File"):
            threads[-1][1].append(line)
    for index, (name, frames) in enumerate(threads):
        yield ("MainThread" if index == len(threads) - 1 else name), _shown(frames)


def _shown(frames: Sequence[str]) -> list[str]:
    own = [line for line in frames if not any(part in line for part in _HIDDEN)]
    return own[:_MOST_FRAMES]

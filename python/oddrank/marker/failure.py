"""Ends a test with ranks as pytest would: passed, skipped, or failed with one verdict."""

import bdb
import builtins
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from oddrank import _native
from oddrank.errors import type_and_text
from oddrank.finding import grouped, ranks_text
from oddrank.marker.evidence import Evidence
from oddrank.marker.rank_group import RankGroup
from oddrank.marker.rank_start import Rank, is_failure
from oddrank.triage import causes, findings, verdict, words
from oddrank.triage.facts import Death, Fact, Frame, Process, Source, Stack, World
from oddrank.triage.facts import ranks as ranks_of
from oddrank.triage.suspects import Suspect
from oddrank.triage.timeline import signal_name
from oddrank.triage.view import view

# Causes that say more than "it did not end", for a rank that no other waits for in a call.
_TELLING = ("end", "held", "others")
_TELLING_TOO = (causes.DEVICE, causes.GIL_HELD)
_MOST_FRAMES = 40  # frames shown of a stack
_HIDDEN = ("/_pytest/", "/pluggy/", "/oddrank/marker/", "<frozen ", "<string>")
_said_cold: set[str] = set()


def conclude(item: pytest.Function, group: RankGroup) -> None:
    """Raises the ranks' joint outcome: a failure, a skip, an expected failure; or none."""
    for rank in group.ranks:
        if rank.left is not None:
            if rank.left["exits"]:
                pytest.exit(f"{rank.left['text']} (rank {rank.number})")
            raise KeyboardInterrupt
    if group.cold and group.cold not in _said_cold:
        _said_cold.add(group.cold)
        text = f"The ranks are fresh interpreters, which start slowly: {group.cold}."
        item.add_report_section("call", "ranks", text)  # pytest -rA shows it
    told = _Verdict(group) if group.is_bad else None
    _add_sections(item, group, told.first if told is not None else [])
    try:
        _warn(group)
    except Warning:  # pytest -W error; a verdict is more than that
        if told is None:
            raise
    for name, value in group.ranks[0].phases[-1]["properties"] if group.ranks[0].phases else ():
        item.user_properties.append((name, value))
    if told is not None:
        kind: Any = _Seen if group.debug else pytest.fail.Exception
        raise kind(told.text(), pytrace=False)
    expected = _reasons(group, expected=True)
    if expected:
        pytest.xfail(_folded(expected, group.count))
    skipped = _reasons(group, expected=False)
    if skipped:
        raise pytest.skip.Exception(_folded(skipped, group.count), _use_item_location=True)


_Failed: Any = pytest.fail.Exception


class _Seen(_Failed, bdb.BdbQuit):  # type: ignore[misc]
    """A failure for which pytest starts no second debugger: rank 0 has had one."""


def _reasons(group: RankGroup, *, expected: bool) -> dict[str, list[int]]:
    """Returns the reasons for which ranks failed as expected, or were skipped -> these ranks."""
    found: dict[str, list[int]] = defaultdict(list)
    for rank in group.ranks:
        for phase in rank.phases:
            if phase["outcome"] == "skipped" and (phase["xfail"] is not None) == expected:
                found[phase["xfail"] if expected else phase["text"]].append(rank.number)
    return found


def _folded(reasons: dict[str, list[int]], count: int) -> str:
    told = {number for numbers in reasons.values() for number in numbers}
    if len(reasons) == 1 and len(told) == count:
        return next(iter(reasons))
    others = set(range(count)) - told
    return "; ".join(
        [f"{ranks_text(numbers)}: {why}" for why, numbers in reasons.items()]
        + ([f"{ranks_text(others)} passed"] if others else [])
    )


def _add_sections(item: pytest.Item, group: RankGroup, first: Sequence[int]) -> None:
    """Adds ranks' output: equal texts once, the first cause's text first."""
    said: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank in sorted(group.ranks, key=lambda rank: rank.number not in first):
        parts = [("stdout", rank.out.text()), ("stderr", rank.err.text())]
        for phase in (*rank.phases, *rank.after):
            parts += [(name.removeprefix("Captured "), text) for name, text in phase["sections"]]
        for name, text in dict.fromkeys(parts):
            if text:
                said[name, text].append(rank.number)
    for (name, text), numbers in said.items():
        item.add_report_section("call", f"{name} of {ranks_text(numbers)},", text)


def _warn(group: RankGroup) -> None:
    """Repeats the ranks' warnings here, equal ones once, for pytest's summary."""
    seen = set()
    for told in (warning for rank in group.ranks for warning in rank.warnings):
        key = (told["category"], told["text"], told["file"], told["line"])
        if key not in seen:
            seen.add(key)
            kind = getattr(builtins, told["category"], UserWarning)
            if not (isinstance(kind, type) and issubclass(kind, Warning)):
                kind = UserWarning
            warnings.warn_explicit(told["text"], kind, told["file"], told["line"])
    if group.left and not group.is_bad:
        names = ", ".join(group.left[:8]) + (", ..." if len(group.left) > 8 else "")
        text = f"processes that the test had left were ended: {names}"
        warnings.warn(pytest.PytestWarning(text), stacklevel=2)


class _Verdict:
    """The failure's text. first: the ranks that began it; empty: unknown."""

    def __init__(self, group: RankGroup) -> None:
        self._group, self.first = group, list[int]()
        self._evidence: Evidence = group.evidence or Evidence()
        self._notes = [self._evidence.trouble] if self._evidence.trouble else []
        self._unfinished = [rank for rank in group.ranks if rank.was_running]
        try:
            self._sentence = self._judged()
        except Exception as error:  # a fault of oddrank must not hide the ranks' output
            self._notes.append(f"oddrank could not judge: {type_and_text(error)}")
            self._sentence = self._late() if self._unfinished else "the test failed"

    def text(self) -> str:
        return "\n".join([self._sentence, *self._table(), *self._tracebacks(), *self._stacks()])

    # The ranks that began it

    def _judged(self) -> str:
        lost = {rank.number: rank.lost["text"] for rank in self._group.ranks if rank.lost}
        if lost:
            self.first = list(lost)
            why = " and ".join(dict.fromkeys(lost.values()))
            return f"{ranks_text(lost)} did not run the test: {why}"
        facts = [*self._evidence.facts, World(self._group.count, Source("pytest"))]
        for rank in self._group.ranks:
            facts += _deaths(rank, self._evidence.sites.get(rank.number, ()))
        suspects = verdict.suspects(view(facts))
        # All ranks are on this host.
        sentences = [
            findings.finding(suspect).what.replace(f" ({os.uname().nodename})", "")
            for suspect in suspects
        ]
        cause = suspects[0].cause if suspects else causes.UNKNOWN
        telling = cause.about in _TELLING or cause in _TELLING_TOO
        if cause.about != "nobody" and (suspects[0].waiting or telling):
            self.first = list(ranks_of(suspects[0].processes))
            return self._left_the_others(suspects[0]) or sentences[0]
        if self._unfinished:
            return self._late()
        return sentences[0] if sentences else "the test failed"

    def _left_the_others(self, suspect: Suspect) -> str:
        """Returns the sentence for ranks that others wait for although their test has ended."""
        ranks = [rank for rank in self._group.ranks if rank.number in self.first]
        if any(rank.was_running or rank.has_failed or rank.has_died for rank in ranks):
            return ""
        ended = " and ".join(dict.fromkeys(map(_outcome, ranks)))
        at = words.call_text(suspect.at) or "the call that the others are in"
        wait = "wait" if len(suspect.waiting) > 1 else "waits"
        return (
            f"{ranks_text(self.first)} {ended} without entering {at};"
            f" {ranks_text(ranks_of(suspect.waiting))} {wait} in it"
        )

    def _late(self) -> str:
        late = [
            rank for rank in self._unfinished if self._group.begun or "begins" not in rank.passed
        ]
        self.first = [rank.number for rank in late]
        places = {_place(rank) for rank in late} - {""}
        if {_outcome(rank) for rank in late} == {"passed"}:
            what = f"{ranks_text(self.first)} passed, but the process does not end"
        else:
            verb = "end" if self._group.begun else "begin the test"
            within = f" within {self._group.late}" if self._group.late else ""
            what = f"{ranks_text(self.first)} did not {verb}{within}"
        return f"{what}: {places.pop()}" if len(places) == 1 else what

    # The rest of the text

    def _table(self) -> Iterator[str]:
        if self._group.late:
            yield f"deadline: {self._group.late}"
        yield from self._notes
        told = grouped((_state(rank), rank.number) for rank in self._group.ranks)
        yield from (f"  {ranks_text(numbers)}: {state}" for state, numbers in told.items())

    def _tracebacks(self) -> Iterator[str]:
        """Yields the first cause's traceback, and a line for each other failure."""
        shown: dict[str, list[int]] = defaultdict(list)
        texts: dict[str, str] = {}
        for rank in self._in_order(self._group.ranks):
            for error, text in _errors(rank):
                shown[error].append(rank.number)
                texts.setdefault(error, text)
        for index, (error, numbers) in enumerate(shown.items()):
            if index == 0 and (not self.first or set(numbers) & set(self.first)):
                yield f"\n{ranks_text(numbers)}:\n{texts[error]}\n"
            else:
                yield f"{ranks_text(numbers)}: {error}"

    def _stacks(self) -> Iterator[str]:
        """Yields all stacks of the ranks that still ran, equal ones once."""
        same: dict[tuple[str, str], list[int]] = defaultdict(list)
        for rank in self._in_order(self._unfinished):
            for name, frames in _stacks(rank, self._evidence.facts):
                lines = [f'  File "{f.file}", line {f.line} in {f.function}' for f in frames]
                same[name, "\n".join(lines)].append(rank.number)
        for (name, text), numbers in same.items():
            yield f"\n{ranks_text(numbers)}, {name} (most recent call first):\n{text}"

    def _in_order(self, ranks: Sequence[Rank]) -> list[Rank]:
        return sorted(ranks, key=lambda rank: rank.number not in self.first)


def _deaths(rank: Rank, site: tuple[Frame, ...]) -> Iterator[Death]:
    """Yields how a rank's test, or else its process, failed. site: the place of the failure."""
    process, source = Process(rank.number, None, rank.process.pid), Source(f"rank {rank.number}")
    for phase in rank.phases:
        if phase["outcome"] == "failed" and phase["error"]:
            frames = tuple(Frame(name, file, line) for name, file, line in phase["frames"])
            yield Death(
                process, "exception", source, phase["time"], text=phase["error"],
                site=frames[::-1],
            )  # fmt: skip
            return
    if rank.has_died and rank.code is not None:
        if rank.code < 0:
            yield Death(process, "signal", source, rank.ended, signal=-rank.code, site=site)
        else:
            text = "" if "called" in rank.passed else "before its test had ended"
            yield Death(process, "exit", source, rank.ended, code=rank.code, text=text, site=site)


# Texts about one rank.


def _outcome(rank: Rank) -> str:
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


def _state(rank: Rank) -> str:
    if rank.lost is not None:
        return "did not run the test"
    ended = _outcome(rank)
    if rank.was_running:
        where = _place(rank)
        what = "had not ended" if ended == "ran" else f"{ended}, and ran on"
        return f"{what}: {where}" if where else what
    if rank.has_died and rank.code is not None:
        how = signal_name(-rank.code) if rank.code < 0 else f"exit code {rank.code}"
        return f"ended by {how}" if ended == "ran" else f"{ended}, then ended by {how}"
    return "waited for the others" if ended == "ran" else ended


def _place(rank: Rank) -> str:
    """Returns a rank's place: the innermost frame of its main thread, or else of another."""
    for name, frames in reversed(_dumped(rank)):
        if frames:
            thread = "" if name == "MainThread" else f"{name} "
            at = frames[0]
            return f"{thread}in {at.function} ({Path(at.file).name}:{at.line})"
    return ""


def _errors(rank: Rank) -> Iterator[tuple[str, str]]:
    """Yields each failure that a rank reported: as one line, and as its whole text."""
    if rank.lost is not None:
        yield rank.lost["text"], rank.lost.get("more", "")
    for phase in rank.phases:
        if is_failure(phase):
            line = phase["error"].partition("\n")[0] or "a subtest failed"
            if phase["frames"]:
                name, file, number = phase["frames"][-1]
                line += f" at {name} ({Path(file).name}:{number})"
            yield line, phase["text"]


def _stacks(rank: Rank, facts: Iterable[Fact]) -> Iterator[tuple[str, Sequence[Frame]]]:
    """Yields name and frames of each thread: as it wrote them itself, else from its record."""
    own = [(name, frames) for name, frames in _dumped(rank) if frames]
    yield from own
    recorded = [fact for fact in facts if isinstance(fact, Stack)] if not own else []
    for stack in recorded:
        for thread in stack.threads:
            if thread.process.rank == rank.number:
                yield f"{thread.name} ({thread.state or 'as recorded'})", _shown(stack.frames)


def _dumped(rank: Rank) -> list[tuple[str, Sequence[Frame]]]:
    """Returns name and frames of each thread that faulthandler wrote, the main thread last."""
    found = _native.core().read_stack_text(rank.dump.encode())
    stacks = [_shown([Frame(*frame) for frame in stack]) for stack in found["stacks"]]
    threads = [
        (f"thread {name}" if name else "a thread", stacks[stack])
        for _, stack, _, _, name, *_ in found["threads"]
    ]
    return [*threads[:-1], *(("MainThread", frames) for _, frames in threads[-1:])]


def _shown(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Leaves out pytest's own frames."""
    own = [frame for frame in frames if not any(part in frame.file for part in _HIDDEN)]
    return own[:_MOST_FRAMES]

"""Asks all guards what their ranks do, for triage's judge, in memory."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.control.stages import RankState
from oddrank.errors import OddrankError
from oddrank.run.watch import Awaited, Work, has_ended, is_heard
from oddrank.trace.ranks import LOOK, SILENT, Seen, state_words, with_end
from oddrank.triage.facts import GONE, Activity

# Classes of places (triage/leaves.py) in which a process waits, perhaps in a loop.
_WAITS = ("peers", "gpu", "lock", "queue", "threads", "network")
_LEAVES_SECONDS = 10.0  # as long as a guard may stay after the end of its rank
MOST_KEPT = 64 << 20
"""Bytes of records, of all ranks, that are kept from one snapshot to the next."""


@dataclass(frozen=True)
class Snapshot:
    """All ranks at a moment."""

    work: Mapping[int, Work]
    """Rank -> its work, if its guard has answered."""
    asked: float
    answered: float
    """Unix times between which the guards looked."""
    seen: list[Seen] = field(default_factory=list)
    records: dict[int, str] = field(default_factory=dict)
    """Rank -> the name of its record."""
    contents: dict[str, bytes] = field(default_factory=dict)
    """The records, by name."""


class Taker:
    """Takes snapshots, and keeps the last answers of ranks: their guards end soon after them."""

    def __init__(self, hub: Any, host: str, records: Sequence[Path]) -> None:
        """records: folders on this host that may hold the job's records."""
        self._hub, self._host, self._records = hub, host, records
        self._number = 0
        self._last: dict[int, dict[str, Any]] = {}

    def take(self, patience: float, *, look: float, ended: Mapping[int, float]) -> Snapshot:
        """Waits `patience` seconds for answers.

        look: seconds between two looks at threads, which show their CPU time; 0: one look.
        ended: when ranks ended, by the monotonic clock.
        """
        expected = sum(map(is_heard, self._ranks()))
        asked = time.time()
        results = self.ask("snapshot", str(round(look * 1000)), expected, patience)
        answered = time.time()
        answers = {}
        for rank, payload in results.items():
            with suppress(OddrankError):  # a guard of another version
                answers[rank] = _native.core().run_unpack_snapshot(payload)
        work = {
            rank: Work(
                found["start_time"], found["realtime_ns"] / 1e9, found["cpu_ns"] / 1e9,
                found["io_bytes"],
            )
            for rank, found in answers.items()
        }  # fmt: skip
        taken = Snapshot(work, asked, answered)
        now, since_boot = time.time(), time.monotonic()
        ranks = self._ranks()
        gone = self._gone_hosts(ranks, lambda rank: since_boot - ended.get(rank, since_boot))
        for state in ranks:  # as they are now: a rank that ended meanwhile has its end in it
            found = answers.get(state.rank) or self._earlier(state)
            if found is not None:
                self._last[state.rank] = {**found, "progress": state.progress, "workers": ()}
                one = seen_of(state, found, look)
            elif has_ended(state) or state.contact == "silent" or state.host in gone:
                life = "dead" if has_ended(state) else SILENT
                one = Seen(
                    state.rank, state.host, state.pid, 0, life, now, state.signal, state.exit_code
                )
            else:
                continue
            # One clock for all ends: their order shows which one followed from which. A rank that
            # is gone, and whose end no guard has reported yet, has ended after all others.
            ago = since_boot - ended.get(state.rank, since_boot)
            taken.seen.append(replace(one, ended=now - ago) if one.state in GONE else one)
            if found is not None and found["record"]:
                name = f"rank{state.rank}-{state.pid}-{found['start_time']}.trace"
                taken.records[state.rank] = name
                taken.contents[name] = found["record"]
                for number, worker in enumerate(found["workers"]):
                    taken.contents[name.replace(".trace", f"-worker{number}.trace")] = worker
        self._forget()
        return taken

    def _earlier(self, state: RankState) -> dict[str, Any] | None:
        """Returns what was seen last of a rank that does not answer, if it holds by now."""
        last = self._last.get(state.rank)
        if last is not None and _is_over(last):
            return last
        if (own := self._own(state)) is not None:
            return own
        # It lived then. Its later doings are unknown; its guard has said how it ended.
        if last is None or not has_ended(state) or last["progress"] != state.progress:
            return None
        return last | {"letter": "", "wait_status": -1, "realtime_ns": time.time_ns()}

    def _gone_hosts(self, ranks: Sequence[RankState], ago: Callable[[int], float]) -> set[str]:
        """Returns other hosts of which all guards are gone: a lone one may have been killed.

        ago: how many seconds ago a rank ended. Its guard leaves soon after, which tells nothing.
        """
        gone: dict[str, list[bool]] = {}
        for state in ranks:
            left = has_ended(state) and ago(state.rank) < _LEAVES_SECONDS
            gone.setdefault(state.host, []).append(state.contact == "closed" and not left)
        gone.pop(self._host, None)
        return {host for host, each in gone.items() if len(each) > 1 and all(each)}

    def _forget(self) -> None:
        """Forgets records, first of ranks that live, so that all together are not too large."""
        size = sum(len(found["record"]) for found in self._last.values())
        for rank in sorted(self._last, key=lambda rank: _is_over(self._last[rank])):
            if size <= MOST_KEPT:
                return
            size -= len(self._last[rank]["record"])
            self._last[rank] |= {"record": b""}

    def _ranks(self) -> list[RankState]:
        return [RankState(**row) for row in self._hub.snapshot()]

    def ask(
        self, stage: str, parameters: str, expected: int, seconds: float, *,
        over: Callable[[], bool] = lambda: False, poll: float = 0.005,
    ) -> dict[int, bytes]:  # fmt: skip
        """Begins a stage of all guards; returns their results by rank.

        Waits for `expected` results, `seconds`, or until over(): asked every `poll` seconds.
        """
        self._number += 1
        self._hub.begin(self._number, stage, parameters, seconds)
        end = time.monotonic() + seconds
        while self._hub.result_count() < expected and time.monotonic() < end and not over():
            time.sleep(poll)
        found: dict[int, bytes] = self._hub.results()
        return found

    def _own(self, state: RankState) -> dict[str, Any] | None:
        """Returns what this process can see itself of a rank of its host, whose guard is silent."""
        if state.host != self._host or not state.pid:
            return None
        name = f"rank{state.rank}-{state.pid}-*.trace"
        for file in (file for records in self._records for file in records.glob(name)):
            started = int(file.stem.rpartition("-")[2])
            ((letter, _, status, now, _),) = _native.core().trace_kernel_states([state.pid])
            there = now == started
            with suppress(OddrankError, OSError):
                return {
                    "record": _native.core().trace_slim(str(file)),
                    "start_time": started,
                    "realtime_ns": time.time_ns(),
                    "letter": letter if there else "",
                    "wait_status": status if there and letter == "Z" else -1,
                    "threads": [],
                    "oom_kills": 0,
                    "workers": (),
                }
        return None


def seen_of(state: RankState, found: Mapping[str, Any], look: float = LOOK) -> Seen:
    """Says what the kernel and the guard know of a process. look: seconds between two looks."""
    share = LOOK / (look or LOOK)  # of the CPU time between them
    seen = with_end(
        Seen(
            state.rank, state.host, state.pid, found["start_time"], "", found["realtime_ns"] / 1e9,
            threads={
                tid: (state_words(letter, wchan, cpu * share), cpu * share)
                for tid, letter, wchan, cpu in found["threads"]
            },
            oom_kills=found["oom_kills"],
        ),
        found["letter"], found["wait_status"],
    )  # fmt: skip
    if seen.state in GONE and found["wait_status"] < 0:
        # Its parent has asked for it; the guard may have been faster.
        return replace(seen, signal=state.signal, code=state.exit_code)
    return seen


def _is_over(found: Mapping[str, Any]) -> bool:
    """Returns whether a rank had ended when this was seen of it."""
    return found["letter"] in ("", "Z", "X")


def awaited(
    found: Iterable[Mapping[str, Any]], ranks: Iterable[RankState], activities: Iterable[Activity]
) -> dict[int, Awaited]:
    """Returns the ranks that a report's suspects are; all that live if it names none.

    For a script that starts its ranks itself: the script. Its guard sees the work of all of them.
    """
    named = {
        process["rank"]: suspect["leaf_class"] in _WAITS
        for suspect in found
        for process in suspect["processes"]
        if process["rank"] is not None
    }
    states = list(ranks)
    living = {s.rank: False for s in states if is_heard(s) and not has_ended(s)}
    chosen = named or living
    rest = {
        rank: 0.0 if a.beside or (a.turns and not chosen.get(rank)) else a.rests
        for a in activities if (rank := a.process.rank) is not None
    }  # fmt: skip
    if len(states) == 1:
        rests = (one for rank in chosen if (one := rest.get(rank)) is not None)
        script = Awaited(all(chosen.values()), min(rests, default=None))
        return {states[0].rank: script} if chosen else {}
    of_living = {rank: rests for rank, rests in rest.items() if rank in living}
    return {rank: Awaited(spins, of_living.get(rank)) for rank, spins in chosen.items()}

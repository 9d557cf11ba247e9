"""When a job has died or stands still: the rules, without processes."""

from dataclasses import replace

import pytest

from oddrank.control.stages import RankState
from oddrank.finding import ranks_text
from oddrank.run.watch import Awaited, Event, Watch, Work, anybody_works, is_at_work
from texts import rows

STALL = 60.0
TICK = 1.0
QUIET = 5.0
STARTS = "goes 30; "  # a job that makes steps


class Job:
    """Four ranks whose guards report as real ones do: transitions, and how long nothing moved.

    The methods without a leading underscore are the verbs of the stories below. Each returns the
    events that it led to, or what it was asked for.
    """

    def __init__(self):
        self._now, self._limit = 1000.0, STALL
        self._watch = Watch(self._now, STALL)
        self._states = [
            RankState(rank, contact="ok", host="node1", stage="starting") for rank in range(4)
        ]
        self._moved = dict.fromkeys(range(4), 0.0)

    def happens(self, name, story):
        """Lets a story happen: steps `VERB ARGUMENTS -> what follows from it`, for ranks 0-3.

        Nothing follows where nothing is said.
        """
        for step in story.split("; "):
            does, _, follows = step.partition(" -> ")
            verb, *words = does.split()
            found = getattr(self, verb)(*map(_argument, words))
            assert (found or "") == follows, f"{name}: {step}: {found}"

    def goes(self, seconds, ranks=range(4)):
        """Ranks make steps for so long."""
        for rank in ranks:
            self.moves([rank], 1)
            self._moved[rank] = self._now + seconds
        return self.waits(seconds)

    def moves(self, ranks, steps):
        """Guards tell so many steps or collectives."""
        for rank in ranks:
            progress = self._states[rank].progress + steps
            self._set([rank], stage="moving", progress=progress, quiet_ms=0)

    def stands(self, seconds):
        """No rank makes a step; their guards say so when it has been so long."""
        found = self.waits(QUIET)
        for rank, state in enumerate(self._states):
            if state.stage == "moving" and state.state == "running":
                self.rests([rank], self._now - self._moved[rank])
        return "; ".join(filter(None, (found, self.waits(seconds - QUIET))))

    def rests(self, ranks, seconds=0.0):
        """Guards tell for how long ranks have been quiet."""
        self._set(ranks, stage="quiet", quiet_ms=int(seconds * 1000))

    def pauses(self, seconds, ranks):
        """Ranks wait on purpose for so long."""
        self._set(ranks, stage="paused", quiet_ms=0)
        return self.waits(seconds)

    def waits(self, seconds):
        """Time passes and no guard reports anything."""
        found, end = [], self._now + seconds
        while self._now < end:
            self._now += TICK
            found += self._watch.feed(self._now, self._states)
        return ", ".join(map(_words, found))

    def judges(self, seconds):
        """The judge hears no guard for so long."""
        self._now += seconds

    def dies(self, ranks, field="", value=None):
        self._set(ranks, state="dead", **({field: int(value)} if field else {}))

    def contact(self, ranks, how):
        self._set(ranks, contact=how)

    def refuses(self):
        """A rank was started twice."""
        self._watch.refused = True

    def tell(self):
        self._watch.tell()

    def excuse(self):
        self._watch.excuse(self._now)

    def limit(self):
        return f"{self._watch.limit:.0f}"

    def longest(self):
        return f"{self._watch.longest[0]:.0f}"

    def well(self):
        return str(self._watch.goes_well)

    def ended(self, rank):
        """Returns how many seconds ago the rank ended."""
        at = self._watch.ended_at(self._states[rank[0]])
        return at if at is None else f"{self._now - at:.1f}"

    def faults(self, ranks, seconds):
        """The guards of dead ranks saw the first fault so many seconds from now."""
        self._set(ranks, first_fault_ns=int((self._now + seconds) * 1e9))

    def _set(self, ranks, **fields):
        for rank in ranks:
            self._states[rank] = replace(self._states[rank], **fields)


def _argument(word):
    """Returns the ranks of `r0` or `r0-3`, a number, or the word."""
    if word[0] == "r" and word[1].isdigit():
        first, _, last = word[1:].partition("-")
        return range(int(first), int(last or first) + 1)
    return word if word.isidentifier() else float(word)


def _words(event):
    if event.kind == "stall":
        last = "last " if event.last else ""
        return f"{last}stall of {event.seconds:.0f}{'' if event.started else ' at the start'}"
    if event.kind in ("still", "moved"):
        return f"{event.kind} after {event.seconds:.0f}"
    if event.kind in ("death", "cascade"):
        return f"{event.kind} of {ranks_text(event.ranks)}{' told' if event.told else ''}"
    assert event == Event("end")
    return "end"


RUNNING = rows(__file__, "running")
# The first step has not been made. A rank that works may be one whose steps nobody records.
STARTING = rows(__file__, "starting")


def test_what_happens_to_a_job_that_makes_steps():
    for name, story in RUNNING:
        Job().happens(name, STARTS + story)


def test_what_happens_before_the_first_step():
    for name, story in STARTING:
        Job().happens(name, story)


BEFORE = Work(started=1, seconds=10.0, cpu_seconds=5.0, io_bytes=1000)
# How it changes in two seconds, whether it waits in a loop, and whether it is at work.
WORK = [
    ({}, False, False),
    ({"cpu_seconds": 5.05}, False, False),
    ({"cpu_seconds": 7.0}, False, True),
    ({"cpu_seconds": 7.0}, True, False),
    ({"io_bytes": 5000}, False, False),  # a heartbeat
    ({"io_bytes": 1 << 20}, False, True),
    ({"io_bytes": 1 << 20, "cpu_seconds": 7.0}, True, True),
    ({"cpu_seconds": 7.0, "started": 2}, False, False),  # another process
    ({"io_bytes": 1 << 20, "seconds": 10.0}, False, False),  # between two looks at the same time
]


def test_a_process_that_uses_time_moves_bytes_or_runs_lines_is_at_work():
    for changes, spins, works in WORK:
        after = replace(BEFORE, **{"seconds": 12.0, **changes})
        assert is_at_work(BEFORE, after, spins=spins) is works, (changes, spins)
        ranks = {rank: Awaited(spins=spins) for rank in (0, 1)}
        found = anybody_works(ranks, {1: BEFORE}, {0: BEFORE, 1: after}, STALL)
        assert found is works, (changes, spins)


@pytest.mark.parametrize(("rests", "works"), [(3.0, True), (STALL - 3.0, False), (None, False)])
def test_a_process_whose_main_thread_has_run_a_line_in_the_stall_is_at_work(rests, works):
    """As one that evaluates on its GPU: a few lines a second, of which a short look sees none."""
    assert anybody_works({1: Awaited(True, rests)}, {1: BEFORE}, {1: BEFORE}, STALL) is works

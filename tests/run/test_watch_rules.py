"""When a job has died or stands still: the rules, without processes."""

from dataclasses import replace

import pytest

from oddrank.control.root import RankState
from oddrank.finding import ranks_text
from oddrank.run.watch import (
    AllEnded,
    Awaited,
    Cascade,
    Death,
    Moved,
    Stall,
    Still,
    Watch,
    Work,
    anybody_works,
    is_at_work,
)

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
    if isinstance(event, Stall):
        last = "last " if event.last else ""
        return f"{last}stall of {event.seconds:.0f}{'' if event.started else ' at the start'}"
    if isinstance(event, Still | Moved):
        return f"{type(event).__name__.lower()} after {event.seconds:.0f}"
    if isinstance(event, Death | Cascade):
        told = " told" if isinstance(event, Death) and event.told else ""
        return f"{type(event).__name__.lower()} of {ranks_text(event.ranks)}{told}"
    assert event == AllEnded()
    return "end"


RUNNING = {
    "a job that goes on and ends well has no event but its end":
        "goes 600; dies r0-3 exit_code 0; waits 3 -> end; waits 1000",
    "nothing moves for the time of a stall": "stands 58; waits 4 -> stall of 60",
    "one rank that moves is no stall": "stands 10; goes 1000 r2",
    "a pause on purpose makes later stalls no longer":
        "pauses 30 r0-3; goes 20; longest -> 0; stands 64 -> stall of 60",
    "after a pause the time of a stall counts anew":
        "pauses 50 r0-3; rests r0-3; waits 56; waits 8 -> stall of 60",
    "a stall that is a pause is excused, looked at again, and never the last one, which is told":
        "pauses 64 r0-3 -> stall of 60; "
        + 12 * "excuse; waits 56; waits 8 -> stall of 60; " + "excuse; goes 20; longest -> 0",
    "a told stall is over once the rank comes to its pause":
        "pauses 1 r0-1; stands 70 -> stall of 60; tell; pauses 3 r2-3 -> moved after 71",
    "the end of a paused rank is no movement":
        "pauses 10 r0-3; dies r2 signal 9; waits 3 -> death of rank 2; well -> False",
    "a job goes well while a rank moves and none has died":
        "well -> True; stands 10; well -> False; goes 5 r1; well -> True; dies r2 signal 9;"
        " goes 5 r1 -> death of rank 2; well -> False",
    "a long healthy pause that comes again makes this job's stalls longer":
        "stands 30; goes 60; stands 40; goes 60; limit -> 90; stands 80; waits 20 -> stall of 90",
    "one long pause, of a checkpoint that is loaded, makes no stall longer":
        "stands 50; goes 60; stands 4; goes 60; limit -> 60",
    "a pause that was told makes no stall longer":
        "stands 62 -> stall of 60; tell; waits 600 -> still after 600; goes 5 -> moved after 662;"
        " limit -> 60",
    "a stall in which somebody works is looked at again and at last told": "stands 660 -> "
        + ", ".join(f"stall of {n}" for n in range(60, 600, 60)) + ", last stall of 600",
    "an answer that is read late makes no pause shorter":  # it was asked, and then judged for 20 s
        "stands 30; rests r0-3 30; judges 20; waits 15 -> stall of 60",
    "calls that fail as a rank dies in a stall are no progress":
        "stands 61 -> stall of 60; tell; dies r2 signal 9; moves r1 1; waits 1 -> death of rank 2;"
        " waits 5",
    "a stall that was told is over when a rank moves":
        "stands 61 -> stall of 60; tell; waits 30; goes 5 -> moved after 91; stands 62 ->"
        " stall of 60",
    "a rank that went on and ended between two looks has gone on":
        "stands 61 -> stall of 60; tell; moves r0-3 7; dies r0-3 exit_code 0; waits 2 ->"
        " moved after 61, end",
    "a stall that was told is told again after ten minutes and then more seldom":
        "stands 61 -> stall of 60; tell; waits 3000 -> still after 600, still after 1200,"
        " still after 2400",
    "a rank whose guard is lost is not dead":
        "contact r2 closed; goes 100 r0-1; goes 100 r3; stands 62 -> stall of 60",
    "a job of which no guard is heard is not judged":
        "contact r0-3 silent; waits 6000; contact r0-3 closed; waits 1 -> end",
    "the first death is told at once and later ones follow from it":
        "dies r2 signal 9; waits 1 -> death of rank 2; dies r0-1 signal 15; waits 1 ->"
        " cascade of ranks 0-1; dies r3 exit_code 1; waits 1 -> cascade of rank 3, end",
    "a crash is a death": "dies r2 signal 11; waits 1 -> death of rank 2",
    "an exit code is a death": "dies r2 exit_code 3; waits 1 -> death of rank 2",
    "of ranks seen dead together those that were told to end are not first":
        "dies r0-1 signal 15; dies r2 exit_code 1; waits 1 -> death of rank 2,"
        " cascade of ranks 0-1",
    "a rank that ends with exit code 0 has not died":
        "dies r2 exit_code 0; waits 3; stands 70 -> stall of 60",
    "a job that was told to end has no first death":
        "dies r1 signal 15; waits 1; dies r0-3 signal 15; waits 1 -> death of ranks 0-3 told, end",
    "an interrupt is for the whole job though other ranks wait on":
        "dies r1 signal 2; waits 10 -> death of rank 1 told; waits 6000",
    "so is the exit code of one": "dies r1 exit_code 130; waits 10 -> death of rank 1 told",
    "one rank alone that was told to end has died":
        "dies r1 exit_code 143; waits 10 -> death of rank 1",
    "an end that nobody saw is a death if the others live on":
        "dies r1; waits 10 -> death of rank 1",
    "an end that nobody saw is none if the others end well":
        "dies r0; dies r1-3 exit_code 0; waits 10 -> end",
    "a death is progress of a kind":
        "stands 50; dies r2 exit_code 0; waits 58; waits 4 -> stall of 60",
    # Rank 2 was stopped before.
    "the time of an end is its guards if that is no earlier fault":
        "ended r1; dies r1-2 exit_code 1; faults r1 0.5; faults r2 -20; waits 1 ->"
        " death of ranks 1-2; ended r1 -> 0.5; ended r2 -> 0.0",
}  # fmt: skip
# The first step has not been made. A rank that works may be one whose steps nobody records.
STARTING = {
    "a job may take ten times as long": "waits 594; waits 10 -> last stall of 600 at the start",
    "the time until the first step is no pause of the job": "waits 300; goes 10; limit -> 60",
    "a rank that works is never named": "waits 1802 -> last stall of 600 at the start,"
        " last stall of 1200 at the start, last stall of 1800 at the start",
    "a stall that was told is told again":
        "waits 602 -> last stall of 600 at the start; tell; waits 660 -> still after 1200",
    "ranks that never came do not hide that the others wait":
        "contact r3 never; waits 602 -> last stall of 600 at the start",
    "a job of which no rank has come has no event": "contact r0-3 never; waits 6000",
}  # fmt: skip


def test_what_happens_to_a_job_that_makes_steps():
    for name, story in RUNNING.items():
        Job().happens(name, STARTS + story)


def test_what_happens_before_the_first_step():
    for name, story in STARTING.items():
        Job().happens(name, story)


BEFORE = Work(started=1, seconds=10.0, cpu_seconds=5.0, io_bytes=1000, events=100)
# How it changes in two seconds, whether it waits in a loop, and whether it is at work.
WORK = [
    ({}, False, False),
    ({"cpu_seconds": 5.05}, False, False),
    ({"cpu_seconds": 7.0}, False, True),
    ({"cpu_seconds": 7.0}, True, False),
    ({"io_bytes": 5000}, False, False),  # a heartbeat
    ({"io_bytes": 1 << 20}, False, True),
    ({"io_bytes": 1 << 20, "cpu_seconds": 7.0}, True, True),
    ({"events": 104}, False, False),
    ({"events": 1000}, False, True),
    ({"cpu_seconds": 7.0, "started": 2}, False, False),  # another process
    ({"events": 1 << 20, "seconds": 10.0}, False, False),  # between two looks at the same time
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

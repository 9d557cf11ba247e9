"""The culprits of a stage that did not end: every rule is a line of a table, no process."""

import signal
from dataclasses import replace
from itertools import product
from pathlib import Path

from oddrank.control.culprits import Culprit, Motion, culprits, torn_down
from oddrank.control.root import RankState
from oddrank.control.stages import PUBLISHING, RankEvidence, RoundEvidence

TABLE = Path(__file__).with_name("data") / "culprits.txt"
LAUNCHER = {"launcher": "torchrun", "launcher_pid": 100, "local_world": 2}
DEATHS = {
    "killed": {"signal": signal.SIGKILL},
    "segfaulted": {"signal": signal.SIGSEGV},
    "aborted": {"signal": signal.SIGABRT},
    "sigtermed": {"signal": signal.SIGTERM},
    "exited": {"exit_code": 0},
    "ended": {},
}
# The words for a rank. Others are a field and its value: progress=7.
WORDS = {
    "works": {},
    **{word: {"state": "dead", **how} for word, how in DEATHS.items()},
    "raised": {"failed": "RuntimeError: no"},
    "never": {"contact": "never", "host": "", "node": -1, "stage": ""},
    "unreached": {"unreached": "node1: no answer"},
    "publishing": {"step": PUBLISHING},
    "orphaned": {"orphaned": True, **LAUNCHER},
    "told-by-launcher": {"sigterm": True, "sigterm_by": 100, **LAUNCHER},
    "told-by-another": {"sigterm": True, "sigterm_by": 77, **LAUNCHER},
    **{word: {word: True} for word in ("waiting", "published", "sigterm")},
    **{word: {"contact": word} for word in ("silent", "closed", "gave-up")},
    **{word: {"state": word} for word in ("zombie", "stopped", "uninterruptible")},
}


def numbers(text):
    """Returns the numbers of a text such as 0-2,5."""
    spans = [part.split("-") for part in text.split(",") if part]
    return [number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)]


def facts(word):
    """Returns the fields that a word of a rank sets."""
    field, equals, value = word.partition("=")
    return {field: int(value) if value.isdigit() else value} if equals else WORDS[word]


def round_of(line):
    """Returns the evidence that a line of the table tells."""
    items = [item.split() for item in line.split(";")]
    said = {item[0]: item[1] if len(item) > 1 else "" for item in items if not item[0][0].isdigit()}
    through = numbers(said.get("through", ""))
    stage = said.get("in", "all_reduce")
    states = {
        r: RankEvidence(r, f"node{r // 2}", r // 2, r % 2, 7, "ok", stage=stage, progress=10)
        for r in range(int(said.get("world", 4)))
    }
    listed = {r: words for who, *words in items if who[0].isdigit() for r in numbers(who)}
    for r, state in states.items():
        words = listed.get(r, [] if r in through else ["waiting"])
        states[r] = replace(state, **{k: v for word in words for k, v in facts(word).items()})
    reason = next(
        (word for word in ("complete", "deadline", "terminated") if word in said), "fault"
    )
    others = numbers(said.get("others", ""))
    return RoundEvidence(stage, through, states, reason, others, said.get("limits", ""))


def named(line):
    """Returns the culprits of a line as the table words them."""
    round = round_of(line)
    found = culprits(round)
    blamed = {rank for one in found for rank in one.ranks}
    for one in found:  # the victims are the others that are not through
        assert {*one.victims} >= {*round.states} - blamed - {*round.results}, line
        assert not {*one.victims} & blamed, line
    words = [
        f"{one.cause}{'?' * (not one.certain)} {','.join(map(str, one.ranks))}".strip()
        + f" in {one.stage}" * (one.stage != round.stage)
        for one in found
    ]
    return "; ".join(words) or "nobody"


def test_who_kept_a_stage_from_its_end():
    lines = [line for line in TABLE.read_text().splitlines() if line and line[0] != "#"]
    assert [f"{line} => {named(line)}" for line in (row.split(" => ")[0] for row in lines)] == lines


OWN_FAULTS = {
    "killed": "killed", "killed zombie": "killed", "segfaulted": "killed", "exited": "exited",
    "ended": "ended", "stopped": "stopped",
}  # fmt: skip


def test_a_rank_with_a_fault_of_its_own_is_named_wherever_it_stood():
    for rank, (fault, cause), waiting in product("02", OWN_FAULTS.items(), ("", "waiting")):
        line = f"{rank} {fault} {waiting}"
        assert named(line) == f"{cause} {rank}", line
    # Inside a collective another rank may have done it.
    assert [named(f"{rank} {fault}") for rank in "02" for fault in ("raised", "aborted")] == [
        f"{cause} {rank}" for rank in "02" for cause in ("raised", "killed")
    ]


def test_ranks_that_were_torn_down_inside_the_collective_are_victims():
    for (fault, cause), hit in product(
        {**OWN_FAULTS, "raised": "raised"}.items(), ("raised", "aborted")
    ):
        line = f"2 {fault}; 0-1,3 waiting {hit}"
        assert named(line) == f"{cause} 2", line
    (culprit,) = culprits(round_of("2 killed; through 0"))
    assert culprit.victims == (1, 3)


def test_a_round_is_over_when_the_launcher_has_ended_all_that_are_not_through():
    for line, over in (
        ("0-3 sigterm killed", True),
        ("1-3 sigterm killed; through 0", True),
        ("1-3 sigterm killed", False),  # rank 0 may go on
        ("0-3 waiting aborted", False),  # no launcher did it
    ):
        assert torn_down(round_of(line)) is over, line


# A rank that still moves at the deadline is slow, not stuck.

STILL = Culprit("no-progress", (1,), "device")
ALL_WAIT = Culprit("all-wait", (), "8 MiB", victims=(0, 1))


def excused(culprit, moves, now):
    """Returns whether `culprit` is excused if its ranks moved at these seconds: {rank: moves}."""
    clock = [0.0]
    motion = Motion(clock=lambda: clock[0])
    for second in range(int(now) + 1):
        clock[0] = second
        motion.see(
            RankState(rank, contact="ok", progress=sum(at <= second for at in times))
            for rank, times in moves.items()
        )
    clock[0] = now
    return motion.excuse([culprit]) == []


BOTH = {0: range(1, 9), 1: range(1, 9)}
ONLY_0 = {0: range(1, 9), 1: ()}


def test_only_who_lately_came_further_is_excused():
    for name, culprit, moves, now, result in (
        ("moved just now", STILL, BOTH, 8.1, True),
        ("stood as long before", STILL, BOTH, 9, True),
        ("stands longer than before", STILL, BOTH, 10, False),
        ("the others moved, it did not", STILL, ONLY_0, 8.1, False),
        ("was seen just now", STILL, {1: (0,)}, 0.4, True),
        ("was seen once", STILL, {1: (0,)}, 0.6, False),
        ("one long pause may be the import of torch", STILL, {1: (0, 8)}, 9.2, False),
        ("two long pauses", STILL, {1: (0, 4, 8)}, 12, True),
        ("longer pauses before, but this is too long", STILL, {1: (0, 120, 240)}, 246, False),
        ("all wait, some lately", ALL_WAIT, BOTH, 10, True),
        ("all wait, one lately", ALL_WAIT, ONLY_0, 10, True),
        ("all wait for long", ALL_WAIT, BOTH, 13.5, False),
        ("death", Culprit("killed", (1,), "device"), BOTH, 8, False),
        ("nobody was seen", STILL, {}, 1, False),
        ("nobody was seen waiting", ALL_WAIT, {}, 1, False),
    ):
        assert excused(culprit, moves, now) is result, name

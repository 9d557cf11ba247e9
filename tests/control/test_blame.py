"""Whom to blame for a stage that did not end: every rule is a line of a table, no process."""

from itertools import product

from control import evidence
from control.evidence import round_of
from oddrank.control.blame import Motion, blame, torn_down
from oddrank.control.stages import RankState
from oddrank.triage import causes
from oddrank.triage.facts import Process, ranks
from oddrank.triage.suspects import Suspect


def named(line):
    """Returns who is to blame as the table words it: cause, ranks, how sure, stage."""
    round = round_of(line)
    words = []
    for one in blame(round):
        who = f" {','.join(map(str, ranks(one.processes)))}" if one.processes else ""
        stage = f" in {one.stage}" * (one.stage != round.stage)
        words.append(f"{one.cause.name}{'?' * (2 - one.certainty)}{who}{stage}")
    return "; ".join(words) or "nobody"


def test_who_kept_a_stage_from_its_end():
    lines = [*evidence.rows("blame.txt")]
    assert [f"{line} => {named(line)}" for line in (row.split(" => ")[0] for row in lines)] == lines


OWN_FAULTS = {
    **dict.fromkeys(("killed", "killed zombie", "segfaulted", "exited", "ended"), "dead"),
    "stopped": "host-stopped",
}


def test_a_rank_with_a_fault_of_its_own_is_named_wherever_it_stood():
    for rank, (fault, cause), waiting in product("02", OWN_FAULTS.items(), ("", "waiting")):
        line = f"{rank} {fault} {waiting}"
        assert named(line) == f"{cause} {rank}", line
    # Inside a collective another rank may have done it.
    assert [named(f"{rank} {fault}") for rank in "02" for fault in ("raised", "aborted")] == [
        f"dead {rank}" for rank in "02" for _ in range(2)
    ]


def test_ranks_that_were_torn_down_inside_the_collective_are_victims():
    for (fault, cause), hit in product(
        {**OWN_FAULTS, "raised": "dead"}.items(), ("raised", "aborted")
    ):
        line = f"2 {fault}; 0-1,3 waiting {hit}"
        assert named(line) == f"{cause} 2", line


def test_a_round_is_over_when_the_launcher_has_ended_all_that_are_not_through():
    for line, over in (
        ("0-3 sigterm killed", True),
        ("1-3 sigterm killed; through 0", True),
        ("1-3 sigterm killed", False),  # rank 0 may go on
        ("0-3 waiting aborted", False),  # no launcher did it
    ):
        assert torn_down(round_of(line)) is over, line


# A rank that still moves at the deadline is slow, not stuck.
STILL = Suspect(causes.HOST_STUCK, (Process(1),), "behind", 1)
ALL_WAIT = Suspect(causes.ALL_WAIT, (), "nobody-behind", 0)
BOTH = {0: range(1, 9), 1: range(1, 9)}
ONLY_0 = {0: range(1, 9), 1: ()}


def excused(suspect, moves, now):
    """Returns whether `suspect` is excused if its ranks moved at these seconds: {rank: moves}."""
    clock = [0.0]
    motion = Motion(clock=lambda: clock[0])
    for second in range(int(now) + 1):
        clock[0] = second
        motion.see(
            RankState(rank, contact="ok", progress=sum(at <= second for at in times))
            for rank, times in moves.items()
        )
    clock[0] = now
    return motion.excuse([suspect]) == []


def test_only_who_lately_came_further_is_excused():
    for name, suspect, moves, now, result in (
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
        ("death", Suspect(causes.DEAD, (Process(1),), "guard-saw-it", 2), BOTH, 8, False),
        ("nobody was seen", STILL, {}, 1, False),
        ("nobody was seen waiting", ALL_WAIT, {}, 1, False),
    ):
        assert excused(suspect, moves, now) is result, name

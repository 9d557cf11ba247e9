"""A rank that left no evidence is named only if it can't wait for anybody itself."""

from dataclasses import replace

from oddrank.triage.facts import Call, Group, Source, World
from progress import done, inside, progress
from triage.told import check, into

EIGHT = Group("0", tuple(range(8)), "default_pg")
TWELVE = Group("0", tuple(range(12)), "default_pg")
LEFT, RIGHT = Group("t", (0, 1, 2, 3)), Group("t", (4, 5, 6, 7))
PAIRS = [Group(f"p{rank}", (rank, rank + 4)) for rank in range(4)]
OF_8 = World(8, Source("log"))


def member(rank, *others):
    """The facts of a rank of eight that has done all in groups of which nothing else is said."""
    own = [EIGHT, LEFT if rank < 4 else RIGHT, PAIRS[rank % 4]]
    told = {fact.group for fact in others}
    return [*others, *(done(rank, 4, group=group) for group in own if group not in told)]


def waiting(group, *ranks):
    return [fact for rank in ranks for fact in member(rank, inside(rank, 5, group=group))]


def of_twelve(rank):
    """A rank of rows of four and columns of three: row 0 waits in its row, the others for 2."""
    row = Group("r", tuple(range(rank // 4 * 4, rank // 4 * 4 + 4)))
    column = Group("c", (rank % 4, rank % 4 + 4, rank % 4 + 8))
    waits = row if rank < 4 else column if rank % 4 == 2 else None
    return [
        inside(rank, 5, group=group) if group is waits else done(rank, 4, group=group)
        for group in (TWELVE, row, column)
    ]


def at(rank, group, usual):
    call = Call(5, "all_to_all", dtype="float16", since=9.0, usual=usual)
    return progress(rank, group, enqueued=5, completed=4, open=(call,))


def test_which_silent_rank_can_be_the_culprit(golden):
    cut = replace(done(2, 4), whole=False, cut=True)
    usual = [fact for rank in (0, 1, 3) for fact in member(rank, at(rank, LEFT, usual=True))]
    check(golden, {
        # 1 has issued nothing more. 2 left no dump: it may wait for 1 as well.
        "a rank that was heard and fits":
            ([*member(1), *waiting(LEFT, 0, 3), OF_8], ("not-entered", (1,), 1)),
        "a silent rank may wait for another silent one":
            ([*waiting(LEFT, 0, 1, 3), *waiting(RIGHT, 4, 5, 7)],
             ("not-entered-or-inside", (2, 6), 0)),
        # 2 and 4 left no dump: whatever 2 shares with 4, it has been through with those that wait.
        "a silent rank if nobody else can be it":
            ([fact for rank in (0, 1, 3, *range(5, 12)) for fact in of_twelve(rank)],
             ("not-entered-or-inside", (2,), 1)),
        # 4 to 7 wait in the default group for 0 and 1, who wait in their row for 2. 3 left no dump
        # either, but whoever waits for it waits for others that are known to wait.
        "of many silent ranks those for whom others wait first":
            ([*waiting(Group("u", (0, 1, 2)), 0, 1), *waiting(EIGHT, 4, 5, 6, 7)],
             ("not-entered-or-inside", (2,), 0)),
        "one rank alone in a call with a silent one may be stuck itself":
            ([*waiting(PAIRS[2], 6), OF_8, *waiting(LEFT, 0, 1)],
             ("not-entered-or-inside", (2, 3), 0)),
        "who alone did what it never did where its peer is silent":
            ([OF_8, *member(6, at(6, PAIRS[2], usual=False)), *usual], ("mismatch", (6,), 1)),
        "a dump that was cut off does not show that its rank is behind":
            ([*into(7, 0, 1, 3), cut], ("not-entered-or-inside", (2,), 1)),
        "one that was cut off and a silent rank":
            ([*into(7, 0, 1), cut], ("not-entered-or-inside", (2, 3), 0)),
    })  # fmt: skip

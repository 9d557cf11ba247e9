"""A rank that left no evidence is named only if it can't wait for anybody itself."""

from dataclasses import replace

from oddrank.triage.facts import Call, Group, Source, World, ranks
from oddrank.triage.findings import finding
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from progress import done, inside, judged, progress

EIGHT = Group("0", tuple(range(8)), "default_pg")
LEFT, RIGHT = Group("t", (0, 1, 2, 3)), Group("t", (4, 5, 6, 7))
PAIRS = [Group(f"p{rank}", (rank, rank + 4)) for rank in range(4)]


def member(rank, *others):
    """The facts of a rank of eight that has done all in groups of which nothing else is said."""
    own = [EIGHT, LEFT if rank < 4 else RIGHT, PAIRS[rank % 4]]
    told = {fact.group for fact in others}
    return [*others, *(done(rank, 4, group=group) for group in own if group not in told)]


def test_a_rank_that_was_heard_and_fits_is_named_alone():
    # 1 has issued nothing more. 2 left no dump: it may wait for 1 as well.
    facts = member(1)
    for rank in (0, 3):
        facts += member(rank, inside(rank, 5, group=LEFT))
    assert judged(*facts, World(8, Source("log"))) == [("not-entered", (1,), 1)]


def test_a_silent_rank_that_may_wait_for_another_silent_one_is_not_named():
    facts = []
    for rank in (0, 1, 3):
        facts += member(rank, inside(rank, 5, group=LEFT))
    for rank in (4, 5, 7):
        facts += member(rank, inside(rank, 5, group=RIGHT))
    ((_, named, certainty),) = judged(*facts)
    assert (named, certainty) == ((2, 6), 0)
    (found,) = suspects(view(facts))
    assert finding(found).condition == "unknown"


def test_the_evidence_counts_the_ranks_in_its_sentence():
    (found,) = suspects(view([inside(2, 5, group=Group("t", (0, 1, 2)))]))
    text = "ranks 0-1 left no evidence; rank 2 waits in calls with them"
    assert text in [point.text for point in found.support]


def test_a_silent_rank_is_named_if_nobody_else_can_be_it():
    # Rows of four ranks and columns of three. 2 and 4 left no dump: whatever 2 shares with 4, it
    # has been through with those that wait for it.
    everyone = Group("0", tuple(range(12)), "default_pg")
    facts = []
    for rank in (0, 1, 3, 5, 6, 7, 8, 9, 10, 11):
        row = Group("r", tuple(range(rank // 4 * 4, rank // 4 * 4 + 4)))
        column = Group("c", (rank % 4, rank % 4 + 4, rank % 4 + 8))
        waits = row if rank < 4 else column if rank % 4 == 2 else None
        facts += [
            inside(rank, 5, group=group) if group is waits else done(rank, 4, group=group)
            for group in (everyone, row, column)
        ]
    assert judged(*facts) == [("not-entered-or-inside", (2,), 1)]


def test_of_many_silent_ranks_those_are_told_for_whom_others_wait_first():
    # 4 to 7 wait in the default group for 0 and 1, who wait in their row for 2. 3 left no dump
    # either, but whoever waits for it waits for others that are known to wait.
    facts = []
    for rank in (0, 1):
        facts += member(rank, inside(rank, 5, group=Group("u", (0, 1, 2))))
    for rank in (4, 5, 6, 7):
        facts += member(rank, inside(rank, 5, group=EIGHT))
    ((_, named, certainty),) = judged(*facts)
    assert (named, certainty) == ((2,), 0)


def test_one_rank_alone_in_a_call_with_a_silent_one_may_be_stuck_itself():
    facts = [*member(6, inside(6, 5, group=PAIRS[2])), World(8, Source("log"))]
    for rank in (0, 1):
        facts += member(rank, inside(rank, 5, group=LEFT))
    assert all(not certainty for *_, certainty in judged(*facts))


def test_a_dump_that_was_cut_off_does_not_show_that_its_rank_is_behind():
    whole = [inside(rank, 7) for rank in (0, 1, 3)]
    assert judged(*whole, done(2, 4)) == [("not-entered", (2,), 2)]
    cut = replace(done(2, 4), whole=False, cut=True)
    assert judged(*whole, cut) == [("not-entered-or-inside", (2,), 1)]
    others = [inside(rank, 7) for rank in (0, 1)]
    assert judged(*others, cut)[0][1:] == ((2, 3), 0)


def test_who_alone_did_what_it_never_did_is_named_where_its_peer_is_silent():
    def at(rank, group, usual):
        call = Call(5, "all_to_all", dtype="float16", since=9.0, usual=usual)
        return progress(rank, group, enqueued=5, completed=4, open=(call,))

    facts = [World(8, Source("log")), *member(6, at(6, PAIRS[2], usual=False))]
    for rank in (0, 1, 3):
        facts += member(rank, at(rank, LEFT, usual=True))
    assert judged(*facts) == [("mismatch", (6,), 1)]
    (found,) = suspects(view(facts))
    assert ranks(found.processes) == (6,)
    assert "issued all_to_all 5 of group p2" in finding(found).what
    assert "never issued after the same calls before" in finding(found).what

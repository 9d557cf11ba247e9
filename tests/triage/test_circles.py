"""Of ranks that wait for each other, the one that all circles pass through is to blame."""

from oddrank.triage.facts import Call, Group, ranks
from oddrank.triage.findings import finding
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from progress import done, judged, progress

WORLD = Group("0", (0, 1, 2, 3), "default_pg")


def stands(rank, *calls):
    """A rank that has issued calls in this order: (group, seq), or (group, op, peer)."""
    by_group = {}
    for number, (group, *call) in enumerate(calls):
        since = 100.0 + number
        made = (
            Call(None, call[0], peer=call[1], since=since)
            if len(call) == 2
            else Call(call[0], "all_reduce", since=since)
        )
        by_group.setdefault(group, []).append(made)
    return [
        progress(
            rank, group, open=tuple(own), open_count=len(own), enqueued=own[-1].seq,
            completed=own[0].seq - 1 if own[0].seq else None,
        )
        for group, own in by_group.items()
    ]  # fmt: skip


def swapped(usual=None):
    """0 issued the call of the world before that of its data group; 1 waits for it there."""
    data = Group("d", (0, 1))
    (early,) = stands(0, (WORLD, 5))
    (call,) = early.open
    odd = progress(
        0, WORLD, enqueued=5, completed=4, open=(Call(5, call.op, since=call.since, usual=usual),)
    )
    return [
        odd, done(0, 2, group=data), *stands(1, (data, 3), (WORLD, 5)), *stands(2, (WORLD, 5)),
        *stands(3, (WORLD, 5)),
    ]  # fmt: skip


def test_who_swapped_the_calls_of_two_groups_is_named():
    data = Group("d", (0, 1, 2))
    facts = [*stands(0, (WORLD, 5)), done(0, 2, group=data), *stands(3, (WORLD, 5))]
    for rank in (1, 2):
        facts += stands(rank, (data, 3), (WORLD, 5))
    assert judged(*facts) == [("not-entered", (0,), 1)]
    (found,) = suspects(view(facts))
    assert ranks(found.waiting) == (1, 2)
    what = finding(found).what
    assert "rank 0 is stuck: it has not entered all_reduce 3 of group d" in what


def test_two_that_wait_for_each_other_are_both_named_if_nothing_tells_who_is_odd():
    assert judged(*swapped()) == [("cycle", (0, 1), 1)]


def test_of_two_that_wait_for_each_other_the_one_is_named_that_did_what_it_never_did():
    assert judged(*swapped(usual=False)) == [("not-entered", (0,), 1)]


def test_those_that_only_wait_for_a_circle_are_not_in_it():
    pipe = Group("p", (0, 1))
    facts = [*stands(0, (pipe, "recv", 1)), done(0, 4, group=WORLD)]
    for rank in (1, 2, 3):
        facts += stands(rank, (WORLD, 5))
    assert judged(*facts) == [("cycle", (0, 1), 2)]
    (found,) = suspects(view(facts))
    assert "rank 0 waits for rank 1 in recv of group p" in finding(found).what


def test_sets_of_ranks_that_wait_for_each_other_are_named_whole():
    other = Group("1", (0, 1, 2, 3))
    facts = []
    for rank in range(4):
        here, there = (WORLD, other) if rank < 2 else (other, WORLD)
        facts += [*stands(rank, (here, 5)), done(rank, 4, group=there)]
    assert judged(*facts) == [("cycle", (0, 1, 2, 3), 2)]

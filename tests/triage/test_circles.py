"""Of ranks that wait for each other, the one that all circles pass through is to blame."""

from oddrank.triage.facts import Call, Group
from oddrank.triage.judges import circles
from oddrank.triage.judges.wait_graph import Graph
from oddrank.triage.view import view
from progress import ALL4 as WORLD
from progress import done, inside, messages, progress
from selftest.said import takes_one_pass
from triage.told import check, ended, into, verdicts

DATA, DATA3 = Group("d", (0, 1)), Group("d", (0, 1, 2))
PIPE, OTHER, A, B = (
    Group("p", (0, 1)), Group("1", (0, 1, 2, 3)), Group("a", (0, 1)), Group("b", (0, 1)),
)  # fmt: skip
ENDS = Group("pipe", (0, 3))


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
    early = Call(5, "all_reduce", since=100.0, usual=usual)
    odd = progress(0, WORLD, enqueued=5, completed=4, open=(early,))
    return [
        odd, done(0, 2, group=DATA), *stands(1, (DATA, 3), (WORLD, 5)), *stands(2, (WORLD, 5)),
        *stands(3, (WORLD, 5)),
    ]  # fmt: skip


def two_orders(rank, here, there):
    return [*stands(rank, (here, 5)), done(rank, 4, group=there)]


def test_who_is_to_blame_for_a_circle(golden):
    later = [each for rank in (1, 2) for each in stands(rank, (DATA3, 3), (WORLD, 5))]
    in_world = [each for rank in (1, 2, 3) for each in stands(rank, (WORLD, 5))]
    over_gloo = {"group": Group("gloo", (0, 1, 2, 3)), "backend": "gloo"}
    over_nccl = Group("nccl", (0, 1, 2, 3))
    check(golden, {
        "who swapped the calls of two groups":
            ([*stands(0, (WORLD, 5)), done(0, 2, group=DATA3), *stands(3, (WORLD, 5)), *later],
             ("not-entered", (0,), 1)),
        "nothing tells which of two is odd": (swapped(), ("cycle", (0, 1), 1)),
        "the one of two that did what it never did":
            (swapped(usual=False), ("not-entered", (0,), 1)),
        "those that only wait for a circle are not in it":
            ([*stands(0, (PIPE, "recv", 1)), done(0, 4), *in_world], ("cycle", (0, 1), 2)),
        "sets of ranks that wait for each other":
            ([each for rank in range(4)
              for each in two_orders(rank, *((WORLD, OTHER) if rank < 2 else (OTHER, WORLD)))],
             ("cycle", (0, 1, 2, 3), 2)),
        "two orders of two groups":
            ([inside(0, 4, group=A), done(0, 8, group=B), inside(1, 9, group=B),
              done(1, 3, group=A)], ("cycle", (0, 1), 2)),
        # Ranks 0-2 gather over gloo and wait for 3; 3 is inside an all_reduce of NCCL with all.
        "ranks of gloo and of nccl":
            ([*into(4, 0, 1, 2, op="gather", **over_gloo), done(3, 3, **over_gloo),
              inside(3, 9, group=over_nccl), *ended(8, 0, 1, 2, group=over_nccl)],
             ("cycle", (0, 1, 2, 3), 2)),
        "three through messages":
            ([messages(rank, ("recv", (rank + 2) % 3, 1)) for rank in range(3)],
             ("cycle", (0, 1, 2), 2)),
        "two that both receive, and those that wait for them":
            ([messages(0, ("recv", 3, 9), group=ENDS), messages(3, ("recv", 0, 9), group=ENDS),
              *into(7, 1, 2), *ended(6, 0, 3)], ("cycle", (0, 3), 2)),
        "two that both send":
            ([messages(1, ("send", 2, 4)), messages(2, ("send", 1, 4))], ("cycle", (1, 2), 2)),
    })  # fmt: skip


def ring(ranks, first=0):
    """A graph of ranks from `first` on, each of which receives from the next."""
    return [
        messages(first + at, ("recv", first + (at + 1) % ranks, 1), group=Group("r"))
        for at in range(ranks)
    ]


def judged(facts):
    return verdicts(circles.judge(Graph(view(facts))))


def test_a_ring_of_many_ranks_takes_one_pass():
    rings = {ranks: Graph(view(ring(ranks))) for ranks in (200, 2000)}
    takes_one_pass(lambda ranks: circles.judge(rings[ranks]), ranks=2000)
    (made,) = circles.judge(rings[2000])
    assert len(made.processes) == len(made.cycle) == 2000


def test_a_circle_is_found_behind_many_ranks_that_wait_for_it():
    """Of a circle of three and one of two, the shorter one counts, wherever it is."""
    row = [messages(rank, ("recv", rank + 1, 1), group=Group("r")) for rank in range(100)]
    assert judged([*row, *ring(3, first=100)]) == [("cycle", (100, 101, 102), 2)]
    found = judged([*ring(3), *row[3:], *ring(2, first=100)])
    assert found == [("cycle", (100, 101), 2)]


def test_the_rank_that_breaks_two_circles_of_over_a_hundred_is_named():
    """0 waits for two rows of ranks, each of which waits for the next one; both lead back to 0."""
    waits = {0: (1, 200), 100: (0,), 300: (0,)}
    facts = []
    for rank in (*range(101), *range(200, 301)):
        others = waits.get(rank, (rank + 1,))
        group = Group(f"of {rank}", (rank, *others))
        facts += [*stands(rank, (group, 5)), *(done(other, 4, group=group) for other in others)]
    assert judged(facts) == [("not-entered", (0,), 1)]


def test_the_rank_that_is_in_each_of_two_large_circles_breaks_both():
    """The last rank of a row of 100 receives from 0 and from one of another row that leads to 0."""
    end = messages(99, ("recv", 0, 1), ("recv", 200, 2), group=Group("r"))
    rows = [messages(r, ("recv", r + 1, 1), group=Group("r")) for r in (*range(99), 200)]
    back = messages(201, ("recv", 50, 1), group=Group("r"))
    (made,) = circles.judge(Graph(view([*rows, end, back])))
    assert {p.rank for p in made.processes} == set(range(50, 100))

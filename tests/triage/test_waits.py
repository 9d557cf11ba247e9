"""Whoever is waited for and waits for nobody is the culprit; progress decides, never a vote."""

import random
from dataclasses import replace

from oddrank.triage.facts import Call, Group, Identity, Process, Progress, Source, State, World
from oddrank.triage.judges import waits
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from progress import ALL4, differ, done, inside, messages, progress
from triage.told import check, ended, into, verdicts

HANG = [*into(7, 0, 1, 3), done(2, 6)]
ALL_INSIDE = into(7, 0, 1, 2, 3)
GLOO = {"backend": "gloo", "no_messages": True}
ROWS, COLUMN = [Group("r0", (0, 1)), Group("r1", (2, 3))], Group("c", (1, 3))
ONE, OTHER = Group("1", (0, 1)), Group("1", (2, 3))
PAIR, PIPE, DATA = Group("pair", (1, 2)), Group("pipe", (0, 3)), Group("5", (0, 1, 2, 3), "data")
SIX = Group("5", (), "data")
NAMELESS = Group("0", (), "default_pg")
LATE = {"whole": False, "timed_out": True}
SIZE = Source("settings")


def stopped(rank, **more):
    return State(Process(rank, **more), "stopped", Source("guard"))


def ahead(rank, group, *seqs, since, pending=1):
    """A rank whose host has issued these calls, and more, in a group."""
    calls = tuple(Call(seq, "all_reduce", since=since + seq) for seq in seqs)
    return progress(
        rank, group, enqueued=seqs[-1] + pending - 1, completed=seqs[0] - 1, open=calls,
        open_count=len(calls) + pending - 1,
    )  # fmt: skip


def numbered(rank, *calls):
    """A rank inside messages that are counted each way apart: (op, number)."""
    made = tuple(Call(nth, op, peer=1 - rank, nth=nth) for op, nth in calls)
    return progress(rank, Group("pair", (0, 1)), open=made, open_count=len(made))


def variants(one, other, kind="op", usual=None):
    """Ranks that issued other calls than others: (call, ranks); usual: whether each always did."""
    found = differ(7, kind, one, other)
    if usual is None:
        return found
    both = zip(found.variants, usual, strict=True)
    return replace(found, variants=tuple(replace(v, usual=known) for v, known in both))


def for_(rank, seconds):
    """A rank that had waited so long when it was looked at."""
    call = Call(7, "all_reduce", since=1000.0)
    return progress(
        rank, ALL4, enqueued=7, completed=6, open=(call,), time=1000.0 + seconds, pause=0.5
    )


def leaving(rank, usual):
    call = Call(1, "barrier", usual=usual)
    return progress(rank, ALL4, enqueued=1, completed=0, open=(call,), backend="gloo")


FORK = differ(
    0, "op", (Call(None, "all_reduce 7 of default_pg"), (0, 1, 3)),
    (Call(None, "all_reduce 3 of data"), (2,)), is_fork=True,
)  # fmt: skip
REDUCE, BROADCAST = Call(7, "all_reduce"), Call(7, "broadcast")
LONE = progress(
    9, Group("37", (), "TENSOR_MODEL_PARALLEL_GROUP"), enqueued=49406, completed=49386,
    open=(Call(49387, "_allgather_base"),), open_count=20, **LATE,
)  # fmt: skip
IN_121 = {"completed": 120, "open": (Call(121, "all_reduce"),), **LATE}
FIVE = [progress(rank, SIX, **IN_121) for rank in (0, 1, 3, 4, 5)]
IN_71 = {"completed": 70, "open": (Call(71, "all_reduce"),), **LATE}
NOBODY = ("unknown", (), 0)
ONLY_2 = ("not-entered", (2,), 2)
MAYBE_2 = ("not-entered-or-inside", (2,), 1)


def test_who_is_waited_for_by_collectives(golden):
    check(golden, {
        "a rank that did not enter the call of the others": (HANG, ONLY_2),
        "the rank that is ahead is not named when most are behind":
            ([*ended(640, 0, 1), *into(641, 2, 3)], ("not-entered", (0, 1), 2)),
        "a gpu that completes nothing while its host goes on":
            ([*into(9, 0, 1, 3), inside(2, 7, pending=20)], ("gpu-stopped", (2,), 2)),
        "who waits in one group is no culprit in another":  # 0 for 1, 1 for 3, which is in neither
            ([inside(0, 5, group=ROWS[0]), done(1, 4, group=ROWS[0]), inside(1, 3, group=COLUMN),
              done(3, 2, group=COLUMN), inside(2, 5, group=ROWS[1]), done(3, 4, group=ROWS[1])],
             ("not-entered", (3,), 2)),
        "a rank that its group lists twice is not absent":
            (into(7, 0, 1, 2, 3, group=Group("0", (0, 1, 2, 3, 1))), ("unknown", (), 0)),
        "groups of one name and other ranks are not compared":
            ([inside(0, 90, group=ONE), done(1, 89, group=ONE), *into(3, 2, 3, group=OTHER)],
             ("not-entered", (1,), 2)),
        # Rank 2's GPU stopped in a. Rank 1 waits for it there and has issued call 9 of b, in which
        # its GPU is not yet; rank 0 stands in call 9 of b, and rank 3 waits for rank 0 in c.
        "a host that issues ahead does not hide whom its gpu waits for":
            ([ahead(1, PAIR, 5, since=0.0), ahead(2, PAIR, 4, 5, since=0.0, pending=7),
              ahead(1, ONE, 9, since=10.0), ahead(0, ONE, 9, since=10.0),
              ahead(3, PIPE, 3, since=20.0), done(0, 2, group=PIPE)], ("gpu-stopped", (2,), 2)),
        "one rank without evidence": (into(7, 0, 1, 3), MAYBE_2),
        "several ranks without evidence":
            (into(7, 0, 1), ("not-entered-or-inside", (2, 3), 0)),
        "a rank that waits for one without evidence is no culprit":
            ([*into(7, 0, 3), done(1, 6), inside(1, 4, group=PAIR)], MAYBE_2),
        "all are inside one call": (ALL_INSIDE, NOBODY),
        "nobody is in a call": (ended(7, 0, 1, 2, 3), ("outside", (), 0)),
        "a group known by its name gets the ranks that another source knows":
            ([inside(0, 7), done(2, 6), *into(7, 1, 3, group=NAMELESS)], ONLY_2),
        "who is inside a call of an unknown group is no end":
            ([*HANG, inside(2, 3, group=Group("tensor"))], NOBODY),
        "a rank that others have left in a call has not entered theirs":
            ([*into(512, 0, 2, 3), inside(1, 510)], ("inside-call", (1,), 2)),
        "a call over gloo that others have left, in another group, clears nobody":
            ([*HANG, inside(2, 3, group=PAIR, backend="gloo"), done(1, 3, group=PAIR)],
             ("inside-call", (2,), 2)),
        # All are in the default group: 0 and 1 wait there, 3 waits for 2 in another group.
        "waiting in two groups":
            ([*into(7, 0, 1), *ended(6, 2, 3), inside(3, 4, group=ROWS[1]),
              done(2, 3, group=ROWS[1])], ONLY_2),
    })  # fmt: skip


def test_who_is_waited_for_by_messages(golden):
    both = [("send", 1, 5), ("recv", 1, 6)]
    check(golden, {
        "a receive whose send never came":
            ([messages(0, ("recv", 1, 3)), *ended(5, 1, 2, 3)], ("not-entered", (1,), 2)),
        "batches that match in another order":
            ([messages(0, *both), messages(1, ("send", 0, 5), ("recv", 0, 6), ("send", 2, 9)),
              done(2, 5)], ONLY_2),
        "batches that match in the other's order":
            ([messages(0, *both), messages(1, ("recv", 0, 5), ("send", 0, 6), ("send", 2, 9)),
              done(2, 5)], ONLY_2),
        "a batch whose second message has no counterpart waits":
            ([messages(0, *both), messages(1, ("recv", 0, 5))], ("inside-call", (1,), 2)),
        "a message that both sides are in makes nobody wait":
            ([messages(0, ("send", 1, 3)), messages(1, ("recv", 0, 3), ("send", 2, 9)), done(2, 5)],
             ONLY_2),
        # 1 has sent message 6, as far as it knows not yet completed; 0 has got it and waits for 7.
        "messages of a rank that is behind name it":
            ([messages(0, ("recv", 1, 7)), messages(1, ("send", 0, 6))], ("inside-call", (1,), 2)),
        # 0 has sent a hundred before; the first send back has no receive.
        "numbers of each way: a send that nobody receives":
            ([numbered(0, ("send", 101)), numbered(1, ("send", 1), ("recv", 102))],
             ("inside-call", (0,), 2)),
        "numbers of each way: a receive of the one before":
            ([numbered(0, ("send", 101)), numbered(1, ("recv", 100))], ("inside-call", (1,), 2)),
        "numbers of each way: both match":
            ([numbered(0, ("send", 101), ("recv", 1)), numbered(1, ("recv", 101), ("send", 1))],
             NOBODY),
        "an exchange that both number alike":
            ([messages(0, ("send", 1, 5), ("recv", 1, 6)),
              messages(1, ("send", 0, 5), ("recv", 0, 6))], NOBODY),
        "across groups":  # 0 waits for 1, and 1 is inside a collective that 2 has not entered
            ([messages(0, ("recv", 1, 3), group=ONE), *into(7, 1, 3), done(2, 6)], ONLY_2),
    })  # fmt: skip


def test_calls_that_differ_name_the_odd_side(golden):
    sizes = [Call(7, "all_reduce", sizes=size) for size in ("1024", "1000")]
    by_size = variants((sizes[0], (0, 1, 3)), (sizes[1], (2,)), "sizes")
    known = {"usual": (False, True)}
    in_other = [done(2, 6), inside(2, 3, group=DATA)]
    in_other += [done(rank, 2, group=DATA) for rank in (0, 1, 3)]
    check(golden, {
        # Most may be wrong, as after `if rank > 0`: only what came before would tell.
        "the minority": ([*ALL_INSIDE, by_size], ("mismatch", (2,), 1)),
        "two sides of equal size":
            ([*ALL_INSIDE, variants((REDUCE, (0, 1)), (BROADCAST, (2, 3)))],
             ("mismatch", (0, 1, 2, 3), 0)),
        "of two equal sides the one that did not as always":
            ([*ALL_INSIDE, variants((BROADCAST, (0, 1)), (REDUCE, (2, 3)), **known)],
             ("mismatch", (0, 1), 1)),
        "a minority that did as always":
            ([*ALL_INSIDE, variants((BROADCAST, (0, 1, 2)), (REDUCE, (3,)), **known)],
             ("mismatch", (3,), 1)),
        # Calls of several groups tell of ranks that wait for each other, of no others.
        "who made another call than most, each waiting for the others":
            ([*into(7, 0, 1, 3), *in_other, FORK], ("mismatch", (2,), 1)),
        "a rank that waits for nobody, where others went another way":
            ([*into(7, 0, 1, 3), done(2, 6), FORK], ("not-entered", (2,), 2)),
        "at a call without a number, as torch compared them":
            ([differ(0, "op", (Call(None, "all_reduce"), (0,)), (Call(None, "broadcast"), (1,)))],
             ("mismatch", (0, 1), 0)),
        "a difference that all ranks have completed":
            ([*ended(8, 0, 1, 2, 3), by_size], ("outside", (), 0)),
    })  # fmt: skip


def test_states_and_identities_join_what_progress_says(golden):
    gloo = into(7, 0, 1, 2, 3, backend="gloo")
    running = [State(Process(rank), "running", Source("guard")) for rank in (0, 1, 3)]
    same = Identity(Process(2, "node1", 77), Source("log"))
    check(golden, {
        "a stopped process": ([*HANG, stopped(2, host="node1", pid=77)], ("host-stopped", (2,), 2)),
        "a rank that was stopped inside the call":
            ([*gloo, stopped(2), *running], ("host-stopped", (2,), 2)),
        "a pid and a rank of one process":
            ([*HANG, same, stopped(None, host="node1", pid=77)], ("host-stopped", (2,), 2)),
    })  # fmt: skip


def test_who_is_waited_for_by_watchdogs(golden):
    named = [progress(rank, DATA, **IN_121 | {"enqueued": 123}) for rank in (0, 2, 3)]
    elsewhere = progress(0, Group("pipe", (0,)), **LATE)
    lost = [progress(1, Group("5", (0, 1)), **IN_71), progress(3, Group("6", ()), **IN_71)]
    spoke = progress(2, Group("0", ()), whole=False, enqueued=0, completed=0)
    in_7 = (Call(7, "all_reduce"),)
    check(golden, {
        "a rank alone in a group of which nothing else is known":
            ([LONE, World(16, Source("log"))], NOBODY),
        "the only one whose watchdog speaks and did not time out":
            ([*named, progress(1, ALL4, whole=False, enqueued=5, completed=5)],
             ("not-entered-or-inside", (1,), 1)),
        "the only rank that is inside no call though groups are not known":
            ([*FIVE, World(6, SIZE)], MAYBE_2),
        "of a job of unknown size others may be silent too": (FIVE, NOBODY),
        "the first rank may be silent as well": (FIVE[1:], NOBODY),
        "a gpu of which one call is known to be open and that later ones were issued":
            ([*into(9, 0, 1, 3), progress(2, ALL4, enqueued=20, completed=6, open=in_7)],
             ("gpu-stopped", (2,), 2)),
        "a rank that gave up in another group":
            ([*lost, elsewhere, spoke, World(4, SIZE)], MAYBE_2),
    })  # fmt: skip


def test_how_sure_a_look_at_ranks_that_may_go_on_is(golden):
    gloo = [*into(7, 0, 1, backend="gloo"), inside(3, 7)]
    check(golden, {
        "a short wait": ([for_(0, 0.3), for_(1, 4.0), done(2, 6), for_(3, 0.3)],
                         ("not-entered", (2,), 0)),
        "a long wait": ([for_(0, 0.3), for_(1, 6.0), done(2, 6), for_(3, 0.3)], ONLY_2),
        "whose messages are recorded": ([*gloo, done(2, 6, backend="gloo")], ONLY_2),
        "whose messages are not": ([*gloo, done(2, 6, **GLOO)], ("not-entered", (2,), 1)),
        "who has issued calls that are not":
            ([*gloo, done(2, 6, whole=False, unseen=True, **GLOO)],
             ("not-entered-or-inside", (2,), 0)),
        "several in messages that are not": ([*into(7, 0, 1), *ended(6, 2, 3, **GLOO)],
                                             ("not-entered", (2, 3), 0)),
        "the others do what they never did before":
            ([*(leaving(rank, False) for rank in (1, 2, 3)), done(0, 0, **GLOO)],
             ("not-entered", (0,), 0)),
        "the others do what they always did":
            ([*(leaving(rank, True) for rank in (1, 2, 3)), done(0, 0, **GLOO)],
             ("not-entered", (0,), 1)),
        "several did not get out of one call":
            ([*into(36, 0, 1, 2), done(3, 36), inside(3, 37, group=COLUMN),
              done(1, 36, group=COLUMN)], ("inside-call", (1,), 0)),
        "what others sent over gloo before they left the call has not come":
            ([*into(36, 1, 2, 3, backend="gloo"), inside(0, 37, backend="gloo")], NOBODY),
        "sends over gloo are not seen": (ended(7, 0, 1, 2, 3, **GLOO), ("outside", (), 0)),
    })  # fmt: skip


def test_every_order_of_the_same_facts_gives_the_same_verdict():
    facts = [*HANG, inside(0, 3, group=Group("p", (0, 2))), done(2, 2, group=Group("p", (0, 2)))]
    expected = verdicts(suspects(view(facts)))
    assert expected[0] == ONLY_2
    chance = random.Random(1)
    for _ in range(20):
        chance.shuffle(facts)
        assert verdicts(suspects(view(facts))) == expected


def test_a_large_job_is_judged_without_n_times_n_edges():
    everyone = Group("0", tuple(range(10_000)))
    facts: list[Progress] = into(7, *range(9_999), group=everyone)
    (found,) = waits.judge(view([*facts, done(9_999, 6, group=everyone)]))
    assert [p.rank for p in found.processes] == [9_999]
    assert len(found.waiting) == 9_999


def test_numbers_too_large_for_a_job_are_judged_as_large_ones():
    """A log may hold any digits."""

    def verdict(number):
        calls = (Call(number, "all_reduce"), Call(number, "send", peer=3, nth=number))
        return verdicts(suspects(view([
            progress(0, ALL4, enqueued=number, completed=number, open=calls), *into(7, 1, 2),
        ])))  # fmt: skip

    assert verdict(10**30) == verdict(10**6) != []

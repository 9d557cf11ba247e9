"""A rank that is slow but comes to its calls as it always did is no endless loop."""

from dataclasses import replace

from oddrank.triage.facts import Activity, Call, Process, Source
from oddrank.triage.findings import finding
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from progress import ALL4, done, progress

NOW = 1000.0


def facts(waited, pause):
    """Rank 2 runs while the others have waited for it so long."""
    call = Call(7, "all_reduce", since=NOW - waited)
    waiting = [
        progress(rank, ALL4, enqueued=7, completed=6, open=(call,), time=NOW) for rank in (0, 1, 3)
    ]
    runs = Activity(Process(2), Source("record"), NOW - 0.1, seen=NOW, alone=NOW - waited)
    return [*waiting, done(2, 6), replace(runs, pause=pause)]


def judged(waited, pause):
    (found,) = suspects(view(facts(waited, pause)))
    return found.cause, finding(found).condition


def test_a_rank_that_is_late_for_a_moment_is_slow_at_most():
    assert judged(0.5, 0.1) == ("moving", "slow")


def test_a_rank_that_was_as_late_before_moves():
    assert judged(6.0, 5.0) == ("moving", "slow")


def test_a_rank_that_runs_and_never_was_so_late_is_in_a_loop():
    assert judged(20.0, 5.0) == ("infinite-loop", "stuck")
    assert judged(20.0, None) == ("infinite-loop", "stuck")

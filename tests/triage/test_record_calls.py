"""What the calls of a record say of its process: how late it ever was, and what failed."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oddrank.inputs import Notes
from oddrank.trace.collectives import Collective, ProcessGroup
from oddrank.trace.ranks import End, Frame, Lowered, Seen, Thread
from oddrank.triage.evidence import record, record_calls
from oddrank.triage.facts import Source

SECOND = 10**9


def issued(number, begin, end, state="ended"):
    end_ns = None if end is None else end * SECOND
    return Collective(1, "0", number, "allreduce_", 4, state, begin * SECOND, end_ns)


def test_the_longest_time_between_calls_and_since_when_it_is_in_none():
    history = [issued(1, 0, 1), issued(2, 4, 5), issued(3, 6, 7)]
    assert record_calls.alone(history) == (7.0, 3.0)
    assert record_calls.alone([*history, issued(4, 8, None, "open")]) == (None, None)
    assert record_calls.alone([]) == (None, None)


def test_the_call_that_failed_last_is_told_of_who_exits_then():
    def record(**last):
        calls = [SimpleNamespace(open=False, failed=False, op="barrier")]
        if last:
            calls.insert(0, SimpleNamespace(**last))
        return cast(Any, SimpleNamespace(collectives=calls))

    assert record_calls.last_failed(record(open=False, failed=True, op="send")).op == "send"
    assert record_calls.last_failed(record(open=True, failed=False, op="send")) is None
    assert record_calls.last_failed(record()) is None


def test_functions_that_some_record_leaves_out_are_in_no_stack_unless_innermost():
    frames = [Frame(name, "train.py", line) for line, name in enumerate(("main", "hot", "step"))]
    thread = Thread(1, "MainThread", tuple(frames), hidden=0, ended=False, last=None)
    lowered = tuple(
        Lowered(name, "train.py", 1, level, "lines", None)
        for name, level in (("hot", "off"), ("main", "calls"))
    )
    records = [SimpleNamespace(lowered=each) for each in ((), lowered)]
    missing = record_calls.missing(cast(Any, records))
    assert [f.function for f in record_calls.frames(thread)] == ["step", "hot", "main"]
    assert [f.function for f in record_calls.frames(thread, missing)] == ["step", "main"]
    inside = replace(thread, stack=thread.stack[:2])
    assert [f.function for f in record_calls.frames(inside, missing)] == ["hot", "main"]


def test_what_the_threads_did_that_make_calls_counts_and_of_others_what_those_do_that_wake():
    def seat(caller, states, *, sampled=None, hidden=0):
        threads = [
            Thread(tid, "", (Frame("f", "train.py", 1),), hidden, ended=False, last=100.0 + tid,
                   sampled=sampled)
            for tid in states
        ]  # fmt: skip
        rank = SimpleNamespace(
            threads=threads, main=threads[0], rank=0, host="node1", pid=7, is_child=False,
            last=103.0, step=4, lowered=(), sampled_since=sampled, thread_raised="",
            begin_ns=None, end=End(), collectives=(), file="f", job="j",
        )  # fmt: skip
        history = [issued(1, 2, 3)._replace(thread=caller)]
        seen = Seen(0, "node1", 7, 1, "running", 110.0, threads=states)
        return record_calls.Seat(cast(Any, rank), seen, Source("f"), history)

    def rests(caller, main, other, cpu=0.01, used=0.0, **more):
        states = {1: (main, used), 2: (other, cpu)}
        (_, activity) = record._activity(seat(caller, states, **more), 110.0)
        return activity.rests, activity.beside

    asleep = "asleep in hrtimer_nanosleep"
    assert rests(1, asleep, asleep) == (9.0, False)  # the other one only ticks
    assert rests(9, asleep, asleep) == (9.0, False)  # the caller has ended, or runs no Python
    assert rests(2, asleep, asleep) == (8.0, False)
    assert rests(1, asleep, "running") == (9.0, True)
    assert rests(1, asleep, asleep, cpu=0.05) == (9.0, True)
    assert rests(1, "running", asleep) == (9.0, False)  # it may spin in its call
    assert rests(1, "asleep in futex_wait", asleep, sampled=109.0) == (9.0, False)
    assert rests(1, "stopped", "stopped", sampled=109.0) == (9.0, False)
    # A deep stack that is sampled keeps its own thread from the GIL.
    deep = rests(1, "asleep in futex_wait", asleep, sampled=109.0, hidden=5000, used=0.01)
    assert deep == (0.0, False)
    locked = rests(1, "asleep in futex_wait", asleep, sampled=109.0, hidden=5000)
    assert locked == (9.0, False)


def test_where_ranks_went_different_ways_after_the_last_call_that_all_ended():
    world, pair = ("0", (0, 1, 2, 3)), ("1", (0, 1))

    def call(seq, op="allreduce_", state="open", of=world):
        return Collective(1, of[0], seq, op, 4, state, 1, None, of[1], "gloo")

    def fork(*after, before=9, beside=()):
        seats = []
        for number, more in enumerate(after):
            calls = [
                each for seq in range(1, before)
                for each in (*beside[number : number + 1], call(seq, state="ended"))
            ]  # fmt: skip
            calls = [c._replace(number=i) for i, c in enumerate([*calls, *more], 1)]
            group = ProcessGroup(*world[:1], "gloo", "default_pg", 4, number, world[1], ended=8)
            rank = SimpleNamespace(rank=number, groups=(group,), threads=(), last_at=None)
            seats.append(record_calls.Seat(cast(Any, rank), None, Source("f"), calls))
        return [[(v.call.op, v.ranks) for v in one.variants] for one in record_calls.forks(seats)]

    all_reduce, send = [call(9)], call(1, "send", "ended")
    said = "all_reduce of default_pg (ranks 0-3)"
    alone = [(said, (0, 1, 3)), ("send of default_pg (ranks 0-3)", (2,))]
    assert fork(all_reduce, all_reduce, [send], all_reduce) == [alone]
    assert fork(*[[send, *all_reduce]] * 2, all_reduce, [send, send]) == [
        [("send of default_pg (ranks 0-3)", (0, 1, 3)), (said, (2,))]
    ]
    # A call that has ended was made by all of its group, and two against two tell nothing.
    assert fork([call(1, of=pair, state="ended"), *all_reduce], *[all_reduce] * 3) == []
    assert fork([send], [send], all_reduce, all_reduce) == []
    # Rank 1 left out the call of a pair, to which ranks 2 and 3 have no part.
    of_pair = [call(1, of=pair, state="ended")] * 2
    assert fork([call(9, of=pair)], *[all_reduce] * 3, beside=of_pair) == [
        [(said, (1,)), ("all_reduce of group 1 (ranks 0-1)", (0,))]
    ]
    # Calls of several threads have no common order: not even if each has one left.
    saved = call(1, of=("save", world[1]))._replace(thread=2)
    assert fork(all_reduce, all_reduce, [saved], all_reduce) == []
    assert fork(all_reduce, all_reduce, [saved, *all_reduce], all_reduce) == []
    # Not where the history of one does not reach back to what all have ended.
    assert fork(all_reduce, all_reduce, [send], all_reduce, before=8) == []


@pytest.mark.parametrize(
    ("function", "added"), [("all_reduce", []), ("_new_process_group_helper", ["new_group"])]
)
def test_only_calls_that_no_record_has_are_taken_from_a_stack(monkeypatch, function, added):
    # A rank may be killed where it has entered all_reduce, but not yet begun the call.
    calls = [Collective(1, "0", 1, "allreduce_", 4, "ended", 1, 2, (0, 1), "gloo", number=1)]
    monkeypatch.setattr(record_calls.collectives, "read", lambda *_: [*calls])
    inside = Frame(function, "/x/torch/distributed/distributed_c10d.py", 3)
    thread = Thread(1, "MainThread", (inside,), hidden=0, ended=False, last=None)
    rank = SimpleNamespace(file="f", content=None, groups=(), main=thread)
    seat = record_calls.Seat(cast(Any, rank), None, Source("f"))
    found = record_calls.with_history(seat, 1, Notes()).history
    assert [each.op for each in found[1:]] == added


def test_a_group_whose_ranks_are_not_known_is_left_out():
    group = ProcessGroup("0", "gloo", "default_pg", 4, 0, (), ended=8)
    rank = SimpleNamespace(rank=0, groups=(group,), threads=(), last_at=None)
    assert not [*record_calls.forks([record_calls.Seat(cast(Any, rank), None, Source("f"))])]


def test_a_gil_that_is_held_is_kept_by_the_only_thread_that_runs():
    def gils(main, other, gil_wanted=1.0):
        threads = [
            Thread(i, name, (Frame(name, "train.py", 1),), 0, ended=False, last=None, state=state)
            for i, (name, state) in enumerate((("main", main), ("other", other)))
        ]
        rank = SimpleNamespace(
            threads=threads, main=threads[0], gil_wanted=gil_wanted, lowered=(), file="f",
            last=None, rank=0, host="node1", pid=7, is_child=False, sampled_since=None,
        )  # fmt: skip
        stacks = record._stacks([record_calls.Seat(cast(Any, rank), None, Source("f"))])
        return {t.name: t.gil if t.state != "waits for the GIL" else t.state
                for stack in stacks for t in stack.threads}  # fmt: skip

    wants = {"oddrank": "waits for the GIL"}
    assert gils("running", "asleep") == {"main": True, "other": False, **wants}
    assert gils("asleep", "running") == {"main": False, "other": True, **wants}
    assert gils("running", "running") == {"main": False, "other": False, **wants}
    assert gils("running", "asleep", None) == {"main": None, "other": None}


def test_a_copy_of_a_record_is_read_as_of_the_look_at_its_process():
    def wanted(asked, so_far, state="running"):
        rank = SimpleNamespace(gil_asked=asked, gil_wanted=so_far)
        return record._gil_wanted(cast(Any, rank), Seen(0, "node1", 7, 1, state, 102.0))

    assert wanted(100.0, None) == 100.0
    # The process lives while its copy is read: now is no clock of the copy.
    assert wanted(101.9, 101.9) is None
    assert wanted(100.0, None, "dead") is None


def test_a_script_that_is_over_says_so_whatever_ends_its_process():
    def ends(how, state="dead", *, calls=(), signal=None, code=None, **end):
        rank = SimpleNamespace(
            rank=0, host="node1", pid=7, is_child=False, last=103.0, collectives=calls, main=None,
            last_at=None, end=End(how, **end), threads=(), lowered=(), sampled_since=None,
        )  # fmt: skip
        seen = Seen(0, "node1", 7, 1, state, 110.0, signal=signal, code=code, ended=109.0)
        seat = record_calls.Seat(cast(Any, rank), seen, Source("f"))
        found = record._death(seat, anybody=True)
        return [(d.how, d.signal, d.code, d.time, d.went_on) for d in found]

    over = ("exit", None, 0, None, True)
    assert ends("ending", "running") == [over]
    assert ends("ending") == [over]  # nobody saw how it ended
    assert ends("ending", signal=15) == [("signal", 15, None, 109.0, False), over]
    assert ends("exited", exit_code=0) == [("exit", None, 0, 109.0, False), over]
    assert ends("no word", "running") == []
    assert ends("no word") == [("signal", None, None, 109.0, False)]
    assert ends("exited", exit_code=3) == [("exit", None, 3, 103.0, False)]
    raised = ends("ending", "running", raised="ValueError", time=101.5)
    assert raised == [("exception", None, None, 101.5, False)]
    lost = SimpleNamespace(open=False, failed=True, op="send")
    assert ends("ending", calls=(lost,)) == [("signal", None, None, 109.0, False)]

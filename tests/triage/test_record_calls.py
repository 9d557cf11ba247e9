"""What the calls of a record say of its process: how late it ever was, and what failed."""

from types import SimpleNamespace
from typing import Any, cast

from oddrank.trace.collectives import Collective
from oddrank.triage.evidence import record_calls

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
        calls = [SimpleNamespace(open=False, failed=False, operation="barrier")]
        if last:
            calls.insert(0, SimpleNamespace(**last))
        return cast(Any, SimpleNamespace(collectives=calls))

    assert (
        record_calls.lost(record(open=False, failed=True, operation="allreduce_")) == "all_reduce"
    )
    assert record_calls.lost(record(open=True, failed=False, operation="allreduce_")) == ""
    assert record_calls.lost(record()) == ""

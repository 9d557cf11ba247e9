"""What is slower than published is named, and what could not be judged says why."""

import pytest

from measured_rows import A100, GIB, GLOO, H200, Measured, said_of_nothing
from oddrank.bench.case import Case
from oddrank.bench.expect import expected
from oddrank.bench.facts import Facts
from oddrank.bench.shortfall import judge, judged_from
from oddrank.bench.sizes import parse_sizes


def test_a_node_at_61_percent_is_slow_and_nobody_in_it_is_named():
    rows = [Measured(GIB, 460.0), Measured(8 * GIB, 291.0), Measured(8, 0.001)]
    (found,) = judge(rows, [expected(H200, row) for row in rows], 0.9)
    assert (found.condition, found.cause, found.who.ranks) == (
        "slow",
        "below-expected",
        tuple(range(8)),
    )
    assert "61%" in found.what
    assert "names no rank" in found.what
    assert len(found.evidence) == 1


def test_the_worst_row_comes_first_and_wrong_or_missing_values_are_not_judged():
    rows = [
        Measured(GIB, 400.0),
        Measured(2 * GIB, 100.0),
        Measured(4 * GIB, 1.0, check="wrong"),
        Measured(4 * GIB, None, check="skipped: memory"),
    ]
    (found,) = judge(rows, [expected(H200, row) for row in rows], 0.9)
    assert [round(each.value) for each in found.evidence] == [100, 400]


def test_what_is_too_small_to_be_judged_says_from_which_size_on_it_is():
    found = said_of_nothing(A100, [Measured(8), Measured(256 << 20)])
    assert (found.condition, found.cause, found.who.ranks) == ("unknown", "nothing-published", ())
    assert "8 ranks over nccl" in found.what
    assert [one.text for one in found.evidence] == [
        "2 of 2 rows: all_reduce is judged from 4 GiB on"
    ]
    assert found.next[0].endswith("--sizes 4GiB")
    assert parse_sizes("4GiB") == [judged_from(A100, Case("all_reduce", "float32", 8))]


def test_where_nothing_is_published_no_size_is_named():
    rows = [Measured(1 << 24), Measured(1 << 24, collective="broadcast")]
    found = said_of_nothing(GLOO, rows)
    assert [one.text.partition(": ")[2] for one in found.evidence] == [
        "of all_reduce a physical limit is known, and not what is usual",
        "nothing is published for broadcast there",
    ]
    assert not any("--sizes" in one for one in found.next)
    assert judged_from(Facts("NVIDIA L4", 8, 1, "nccl"), Case("all_reduce", "float32", 8)) is None


@pytest.mark.parametrize(("check", "why"), [("wrong", "wrong values"), ("skipped", "not measured")])
def test_what_could_be_judged_and_has_no_time_that_counts_is_told(check, why):
    (told,) = said_of_nothing(
        H200, [Measured(busbw_GBps=None, algbw_GBps=None, check=check)]
    ).evidence
    assert told.text == f"1 of 1 rows: {why}"

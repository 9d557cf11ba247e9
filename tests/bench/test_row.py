"""From times to bandwidths, as nccl-tests defines them."""

import pytest

from oddrank.bench.case import Case
from oddrank.bench.row import summarise

CASE = Case("all_reduce", "float32", 1_000_000)


def result(*times, mismatch=None):
    return {"backend": "c10d:gloo", "times": list(times), "mismatch": mismatch}


def test_an_iteration_lasts_as_long_as_its_slowest_rank_and_the_median_counts():
    row = summarise(CASE, {0: result(10, 90, 30), 1: result(20, 10, 40)}, 2)
    assert (row.median_us, row.iterations) == (40, 3)  # of 20, 90, 40


@pytest.mark.parametrize(("world", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_busbw_is_algbw_times_2_n_minus_1_over_n(world, factor):
    row = summarise(CASE, {rank: result(1000) for rank in range(world)}, world)
    assert row.algbw_GBps == pytest.approx(1.0)  # 1 MB in 1 ms
    assert row.busbw_GBps == pytest.approx(factor)


def test_one_rank_has_an_algbw_and_no_busbw_and_is_told_why():
    row = summarise(CASE, {0: result(1000)}, 1)
    assert row.algbw_GBps == pytest.approx(1.0)
    assert row.busbw_GBps is None
    assert "one rank" in row.reason


def test_wrong_values_anywhere_are_shown_in_the_row():
    row = summarise(CASE, {0: result(1), 1: result(1, mismatch={"index": 3})}, 2)
    assert row.check == "wrong"


def test_a_size_that_did_not_fit_has_no_figures():
    row = summarise(CASE, {0: result(), 1: result()}, 2)
    assert (row.median_us, row.algbw_GBps, row.busbw_GBps) == (None, None, None)
    assert row.cells()[-1] == "skipped: memory"

"""From times to bandwidths, as nccl-tests defines them."""

import io
import statistics
from dataclasses import replace
from types import SimpleNamespace

import pytest

from oddrank.bench import verify
from oddrank.bench.case import Case
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.expected import Expected
from oddrank.bench.plan import Pass, Task
from oddrank.bench.row import Table, cells, summarise

CASE = Case("all_reduce", "float32", 1_000_000)


def result(*times, mismatch=None, skipped=None):
    return {"backend": "c10d:gloo", "times": [list(times)] if times else [], "mismatch": mismatch,
            "mean": statistics.fmean(times) if times else None, "iterations": len(times),
            "skipped": skipped, "arrival": None, "footprint": 0, "nccl_choice": None}  # fmt: skip


def test_the_mean_makes_the_bandwidth_and_the_distribution_stands_beside_it():
    row = summarise(
        CASE, {0: {**result(20, 90, 40), "mean": 50.0, "iterations": 7}, 1: result()}, 2
    )
    assert (row.mean_us, row.median_us, row.min_us, row.iterations) == (50, 40, 20, 7)
    assert row.algbw_GBps == pytest.approx(1e6 / 50 / 1e3)


def test_the_iterations_of_all_passes_count_and_the_error_knows_how_far_they_lie_apart():
    passes = [[10.0] * 20, [13.0] * 20, [10.0] * 20]
    both = {**result(), "times": passes, "mean": 11.0, "iterations": 60}
    row = summarise(CASE, {0: both, 1: result()}, 2)
    assert (row.median_us, row.iterations, row.passes) == (10, 60, 3)
    assert row.error > 0.2
    one = summarise(CASE, {0: result(*[time for one_pass in passes for time in one_pass])}, 2)
    assert one.error == 0


def test_a_percentile_needs_enough_iterations():
    assert summarise(CASE, {0: result(*range(1, 20)), 1: result()}, 2).p95_us is None
    assert summarise(CASE, {0: result(*range(1, 201)), 1: result()}, 2).p95_us == 190
    assert summarise(CASE, {0: result(*range(1, 100)), 1: result()}, 2).p99_us is None
    assert summarise(CASE, {0: result(*range(1, 201)), 1: result()}, 2).p99_us == 198


def test_samples_are_thinned_evenly_and_kept_in_order():
    row = summarise(CASE, {0: result(*range(1, 10_001)), 1: result()}, 2)
    assert len(row.samples_us) == 512
    assert list(row.samples_us) == sorted(row.samples_us)
    assert row.samples_us[-1] > 9_900


@pytest.mark.parametrize(("world", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_busbw_is_algbw_times_2_n_minus_1_over_n(world, factor):
    row = summarise(CASE, {rank: result(1000) for rank in range(world)}, world)
    assert row.algbw_GBps == pytest.approx(1.0)  # 1 MB in 1 ms
    assert row.busbw_GBps == pytest.approx(factor)


def test_one_rank_has_an_algbw_and_no_busbw_and_is_told_why():
    row = summarise(replace(CASE, in_place=False), {0: result(1000)}, 1)
    assert row.algbw_GBps == pytest.approx(1.0)
    assert row.busbw_GBps is None
    assert "one rank" in row.reason


def test_one_rank_in_place_has_a_time_and_no_bandwidth_and_is_told_why():
    row = summarise(CASE, {0: result(12.0)}, 1)
    assert row.mean_us == 12.0
    assert (row.algbw_GBps, row.busbw_GBps) == (None, None)
    assert "nothing moves" in row.reason
    barrier = COLLECTIVES["barrier"].case("float32", 8, "sum", True, 1)
    assert "barrier" in summarise(barrier, {0: result(12.0)}, 1).reason


def test_wrong_values_anywhere_are_shown_in_the_row():
    row = summarise(CASE, {0: result(1), 1: result(1, mismatch={"index": 3, "wrong": 5})}, 2)
    assert row.wrong == 5
    assert row.check == "wrong"


def test_a_size_that_did_not_fit_has_no_figures_and_says_why():
    row = summarise(CASE, {rank: result(skipped="not enough free memory") for rank in (0, 1)}, 2)
    assert (row.mean_us, row.algbw_GBps, row.busbw_GBps) == (None, None, None)
    assert cells(row)[-1] == "skipped: not enough free memory"


def test_what_takes_no_time_has_no_bandwidth():
    row = summarise(CASE, {0: result(0.0, 0.0), 1: result()}, 2)
    assert (row.mean_us, row.cv, row.algbw_GBps) == (0, None, None)
    assert "too short to measure" in row.reason


def test_a_barrier_has_a_latency_and_no_bandwidth():
    row = summarise(Case("barrier", "float32", 0, "none"), {0: result(10), 1: result()}, 2)
    assert (row.mean_us, row.algbw_GBps, row.busbw_GBps) == (10, None, None)
    assert "no data" in row.reason


@pytest.mark.parametrize(("doubt", "shown"), [("", "79"), ("which ports serve is unknown", "79?")])
def test_a_percentage_of_what_is_doubted_has_a_question_mark(doubt, shown):
    row = summarise(CASE, {rank: result(1000) for rank in range(4)}, 4)
    row = row.expecting(Expected(row.busbw_GBps / 0.789, "published", doubt=doubt))
    assert shown in cells(row)
    assert row.as_data()["expected_doubt"] == (doubt or None)
    skipped = summarise(CASE, {rank: result(skipped="no room") for rank in range(4)}, 4)
    assert not any("?" in cell for cell in cells(skipped.expecting(Expected(1.0, "", doubt=doubt))))


def shown(row):
    """Returns the lines of a table of one row."""
    stream = io.StringIO()
    Table(stream).add(Pass(Task("nccl", CASE, "name"), 0, 1, 1), row)
    return stream.getvalue().splitlines()


def test_what_nccl_chose_is_a_column_and_a_field_only_if_its_log_told_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    chosen = {"algorithm": "NVLS", "protocol": "SIMPLE", "channels": 16}
    row = summarise(CASE, {0: {**result(1000), "nccl_choice": chosen}, 1: result(1000)}, 2)
    assert row.as_data()["nccl_choice"] == chosen
    heads, figures = shown(row)[-2:]
    assert "NCCL chose  check" in heads
    assert "NVLS SIMPLE x16  ok" in figures
    silent = summarise(CASE, {0: result(1000), 1: result(1000)}, 2)
    assert "nccl_choice" not in silent.as_data()
    assert "NCCL chose" not in "".join(shown(silent))


@pytest.mark.parametrize("width", [60, 80, 100, 180, 300])
def test_the_table_fits_the_terminal_and_names_the_columns_that_it_leaves_out(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    table = Table(stream)
    row = summarise(CASE, {rank: result(*range(1000, 1040)) for rank in range(4)}, 4)
    table.add(Pass(Task("c10d", CASE, "name"), 0, 1, 1), row)
    lines = stream.getvalue().splitlines()
    assert all(len(line) <= width for line in lines if "not shown" not in line)
    heads, figures = lines[-2:]
    assert all(name in heads for name in ("size", "mean us", "busbw GB/s", "check"))
    assert figures.split()[-1] == "ok"
    assert ("CV %" in heads) == (width >= 180)
    assert ("CV %" in "".join(lines[:-2])) == (width < 180)


def test_a_rank_counts_the_wrong_values_of_all_it_received(monkeypatch):
    case = Case("all_gather", "float32", 64, "none", in_place=False)
    values = SimpleNamespace(
        fill=lambda *args: None,
        check=lambda *args: [(0, -1, 0.0, 0.0), (3, 2, 1.0, 9.0), (5, 0, 1.0, 2.0)],
    )
    monkeypatch.setattr(verify, "Values", lambda device, world: values)
    context = SimpleNamespace(own=lambda tensor: None, step=lambda text, waiting=False: None)
    group = SimpleNamespace(
        rank=0, world=3, ranks=[4, 5, 6], among="world", context=context, next_turn=lambda: 7
    )
    operation = SimpleNamespace(send=0, recv=0, once=lambda: None, sent=lambda: None)
    seen = verify.verify(group, SimpleNamespace(device=-1), replace(case, bytes=48), operation, 2)
    assert (seen.observer, seen.wrong, seen.index, seen.got) == (4, 16, 4 + 2, 9.0)

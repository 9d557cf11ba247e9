"""Rows: from times to bandwidths, as nccl-tests defines them; refused cases, and the report."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bench.patched import patched
from job import job
from measured_rows import result
from oddrank import launch
from oddrank.bench import report, verify
from oddrank.bench.case import COLLECTIVES, Case
from oddrank.bench.plan import Pass
from oddrank.bench.row import Table, cells, summarise
from oddrank.control.stages import RankState, RunState
from oddrank.control.walk import Outcome
from texts import texts

CASE = Case("all_reduce", "float32", 1_000_000)
MAXIMUM = Case("all_reduce", "bfloat16", 8, "max")


def row_of(*passes, case=CASE, world=2, **changes):
    """Returns the row of a case that took rank 0 these times."""
    others = {rank: result() for rank in range(1, world)}
    return summarise(case, {0: result(*passes, **changes), **others}, world)


def shown(*rows):
    """Returns the lines of a table."""
    stream = io.StringIO()
    table = Table(stream)
    for row in rows:
        table.add(Pass(CASE, 0, 1, 1), row)
    return stream.getvalue()


def test_the_mean_makes_the_bandwidth_and_the_distribution_stands_beside_it():
    row = row_of([20, 90, 40], mean=50.0, iterations=7)
    assert (row.mean_us, row.median_us, row.min_us, row.iterations) == (50, 40, 20, 7)
    assert row.algbw_GBps == pytest.approx(1e6 / 50 / 1e3)
    assert row.cv == pytest.approx(0.5888, abs=1e-4)
    for world, factor in ((2, 1.0), (4, 1.5), (8, 1.75)):
        row = row_of([1000], world=world)  # 1 MB in 1 ms
        assert (row.algbw_GBps, row.busbw_GBps) == pytest.approx((1.0, factor))


def test_the_iterations_of_all_passes_count_and_the_error_knows_how_far_they_lie_apart():
    passes = [[10.0] * 20, [13.0] * 20, [10.0] * 20]
    row = row_of(*passes, mean=11.0)
    assert (row.median_us, row.iterations, row.passes) == (10, 60, 3)
    assert row.error > 0.2
    assert row_of(*passes[:2]).error is None  # how much passes differ is unknown
    assert row_of([10.0]).error is None


def test_a_percentile_needs_enough_iterations_and_samples_are_thinned_evenly():
    assert (row_of(range(1, 20)).p95_us, row_of(range(1, 21)).p95_us) == (None, 19)
    assert (row_of(range(1, 100)).p99_us, row_of(range(1, 101)).p99_us) == (None, 99)
    assert (row_of(range(1, 201)).p95_us, row_of(range(1, 201)).p99_us) == (190, 198)
    samples = row_of(range(1, 10_001)).samples_us
    assert len(samples) == 512
    assert list(samples) == sorted(samples)
    assert samples[-1] > 9_900


def test_a_row_without_a_bandwidth_says_why(golden):
    alone, barrier = {"world": 1}, COLLECTIVES["barrier"].case("float32", 8, "sum", 1)
    lacks = "not enough free memory"
    said = []
    for row, mean, algbw, busbw in (
        (row_of([1000], case=replace(CASE, in_place=False), **alone), 1000, 1.0, None),
        (row_of([12.0], **alone), 12, None, None),
        (row_of([12.0], case=barrier, **alone), 12, None, None),
        (row_of([10], case=barrier), 10, None, None),
        (row_of([0.0, 0.0]), 0, None, None),
        (row_of(), None, None, None),
        (summarise(CASE, {rank: result(skipped=lacks) for rank in (0, 1)}, 2), None, None, None),
    ):
        assert (row.mean_us, row.algbw_GBps, row.busbw_GBps) == (mean, algbw, busbw), row.reason
        said.append(f"{row.reason}; check: {cells(row)[-1]}")
    # A row says which ranks can't run a case, unless all can't.
    for reasons in (["old"] * 3, ["", "old", ""], ["old", "", "old"], ["", "old", "no such GPU"]):
        results = {rank: result(skipped=reason) for rank, reason in enumerate(reasons)}
        row = summarise(Case("all_reduce", "int8", 8), results, 3)
        assert row.check == "skipped"
        said.append(row.reason)
    golden("\n".join(said))


def test_wrong_values_anywhere_are_shown_in_the_row():
    wrong = result([1], mismatch={"index": 3, "wrong": 5})
    row = summarise(CASE, {0: result([1]), 1: wrong, 2: wrong}, 3)
    assert (row.wrong, row.check) == (10, "wrong")


def test_the_table_fits_80_columns(golden):
    text = shown(row_of(range(1000, 1040), world=4), row_of(range(10, 40), case=MAXIMUM, world=4))
    assert max(map(len, text.splitlines())) <= 80
    golden(text)


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
    found = [seen[name] for name in ("observer", "wrong", "index", "got")]
    assert found == [4, 16, 4 + 2, 9.0]


SETUP = {"torch": "2.11.0", "cuda": None, "driver": None, "settings": {}, "gpu": "NVIDIA H200"}
CONNECTED = {"gloo_interface": None, "nccl": None, "links": None}


def run_of(world, **connected):
    """Returns a run of ranks on one node, which have connected if this is told."""
    run = RunState(world, {rank: RankState(rank, "n1", 0) for rank in range(world)})
    run.results["devices"] = {rank: dict(SETUP) for rank in range(world)}
    if connected:
        run.results["connect"] = {rank: {**CONNECTED, **connected} for rank in range(world)}
    return run


def test_devices_are_those_that_the_ranks_have_computed_on():
    for connected, device in (
        ({"transport": "nccl"}, "NVIDIA H200"),
        ({"transport": "gloo"}, "CPU"),  # two ranks, one GPU: neither uses it
        ({}, "NVIDIA H200"),  # the run ended before the ranks were connected
    ):
        ended = Outcome(run_of(2, **connected), complete=False, why="the deadline came")
        said = report.of_sweep([], launch.current({}), ended, {})
        assert said.data["devices"] == {device: 2}


@pytest.mark.needs("torch")
def test_ranks_that_could_run_a_case_do_not_wait_for_those_that_cannot():
    mixed = patched(texts(__file__)["mixed"])  # ranks 1 and 2 have an older GPU than the others
    command = ("bench", "run", "--sizes", "1K", "--dtypes", "int8,float32", "--budget", "3")
    verdict = job(3, command=command, launcher=mixed, deadline=90)
    assert verdict.healthy(), str(verdict)
    skipped, measured = verdict.report["data"]["rows"]
    assert (skipped["check"], measured["check"]) == ("skipped", "ok")
    assert skipped["reason"] == "ranks 1-2: this GPU has no int8"
    assert "skipped: ranks 1-2: this GPU has no int8" in verdict.output


@pytest.mark.needs("torch")
@pytest.mark.parametrize("backend", ["auto", "c10d"])
def test_gpus_without_the_part_that_checks_their_values_are_refused_in_one_line(backend, golden):
    # The facts of the ranks say: a GPU each, and a build without nvcc.
    without_cuda = patched(texts(__file__)["without cuda"])
    command = ("bench", "run", "--sizes", "1K", "--backend", backend)
    verdict = job(2, command=command, launcher=without_cuda, deadline=90)
    assert set(verdict.codes) == {2}, str(verdict)
    assert verdict.report is None, "no rank is blamed"
    golden("".join(line for line in verdict.output.splitlines() if line.startswith("oddrank: ")))
    assert "Traceback" not in verdict.output

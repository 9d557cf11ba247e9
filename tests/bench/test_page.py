"""The page of `bench run --html` and `bench pairs --html`: every figure, as a number and drawn."""

import re
from html import unescape
from itertools import pairwise

import pytest

from job import job
from oddrank import page
from oddrank.bench import page_parts
from oddrank.bench.arrivals import NAME
from oddrank.bench.data import Row
from oddrank.control.stages import RankState, RunState
from oddrank.report import Report
from saved_runs import row

FIGURES = {"mean_us": 1, "algbw_GBps": 3, "busbw_GBps": 3}  # digits behind the point
GATHER = {"collective": "all_gather", "op": "none", "inplace": False}
SIZES = [8, 1 << 10, 1 << 20, 1 << 28]
SWEEP = [
    *(row(size, us=10.0 + size / 5e4) for size in SIZES),
    *(row(size, us=20.0, dtype="bfloat16") for size in SIZES[:2]),
    row(8, check="wrong", us=0.75, **GATHER),
    row(0, collective="barrier", op="none", busbw_GBps=None, algbw_GBps=None),
    row(64, check="skipped", reason="gloo has no such thing", mean_us=None, median_us=None,
        busbw_GBps=None, algbw_GBps=None, error=None, dtype="uint32"),
]  # fmt: skip


@pytest.fixture
def run():
    states = {r: RankState(r, f"node{r // 2}", r // 2, r % 2, contact="ok") for r in range(3)}
    return RunState(4, {**states, 3: RankState(3)})


def parts_of(run, *rows):
    return page_parts.of_sweep(run, [Row(**each) for each in rows], {"CPU": 4})


def shown(parts):
    """Returns the cells of each table's rows, and the circles of each curve: x, y, text."""
    text = page.text(Report.of("bench", {"size": 4}, {}, [], complete=True), parts)
    text = text.partition("<main>")[2].partition("<script")[0]
    rows = [re.findall("<td.*?>(.*?)</td>", line) for line in text.split("<tr>")]
    circle = re.compile(r'<circle(.*?) cx="(.*?)" cy="(.*?)"><title>(.*?)</title>')
    curves = [circle.findall(curve) for curve in text.split("<polyline")[1:]]
    return [row for row in rows if row], curves


@pytest.mark.needs("jinja2")
def test_each_row_is_in_the_table_and_each_bandwidth_is_a_point_of_its_curve(run):
    rows, curves = shown(parts_of(run, *SWEEP))
    assert [cells[0] for cells in rows] == [each["collective"] for each in SWEEP]
    for cells, each in zip(rows, SWEEP, strict=True):
        for cell, (name, digits) in zip(cells[3:6], FIGURES.items(), strict=True):
            assert cell == "-" if each[name] is None else cell == f"{each[name]:.{digits}f}"
        assert cells[7].startswith(each["check"])
    drawn = [SWEEP[:4], SWEEP[4:6], SWEEP[6:7]]
    assert [len(curve) for curve in curves] == [len(each) for each in drawn]
    for curve, of in zip(curves, drawn, strict=True):
        for (kind, x, y, text), each in zip(curve, of, strict=True):
            rate, wrong = re.fullmatch(r"[^:]*: (\S*) GB/s(.*)", text).groups()
            assert float(rate) == pytest.approx(each["busbw_GBps"], rel=1e-3)
            assert ("odd" in kind, bool(wrong)) == (each["check"] == "wrong",) * 2
            assert 52 <= float(x) <= 374
            assert 10 <= float(y) <= 196
        for (_, x, y, _), (_, later, higher, _) in pairwise(curve):
            assert (float(x) < float(later), float(y) > float(higher)) == (True, True)


def test_ranks_have_their_hosts_and_how_late_they_came_and_the_absent_are_told(run):
    arrived = {"n": 300, "own": 1.0, "quantiles": [0.0], "spread": 9.0, "error": 0.1}
    run.results[NAME] = {rank: {**arrived, "median": 3e3 * (rank == 2)} for rank in range(3)}
    made = parts_of(run, row())
    assert (made.absent, made.hosts[2]) == ((3,), "node1")
    assert {note.ranks: "3 ms" in note.text for note in made.notes} == {(0, 1): False, (2,): True}


def test_a_split_shows_each_groups_bandwidth_and_one_rank_its_algbw(run):
    groups = [{"ranks": [i], "busbw_GBps": 1.0 + i} for i in range(2)]
    (table,) = parts_of(run, row(groups=groups), row(64)).tables
    assert [re.findall(r"\d\.\d+", cells[-1]) for cells in table.rows] == [["1.000", "2.000"], []]
    (chart,) = parts_of(run, row(n=1)).charts
    assert [dot.y for dot in chart.curves[""]] == [row(n=1)["algbw_GBps"]]


@pytest.mark.needs("jinja2")
@pytest.mark.parametrize("size", [1, 8, 3000, 1 << 62])
@pytest.mark.parametrize("rates", [(1.0,), (0.05, 0.05), (1e-9, 1e15), (0.3, 4.7), (9.99, 10.01)])
def test_whatever_the_figures_are_points_lie_between_ticks_that_can_be_read(size, rates, run):
    made = parts_of(run, *(row(size, busbw_GBps=rate) for rate in rates))
    (chart,) = made.charts
    assert len(chart.ticks) <= 6
    made = page._chart(chart)
    assert 1 <= len(made["y_ticks"]) <= 7
    assert {52 <= x <= 374 and 10 <= y <= 196 for x, y, _ in made["curves"][0][1]} == {True}


def test_more_curves_than_can_be_told_apart_are_counted(run):
    (chart,) = parts_of(run, *(row(dtype=f"d{i}") for i in range(11))).charts
    made = page._chart(chart)
    assert (len(made["curves"]), made["more"]) == (8, 3)


@pytest.mark.needs("torch", "jinja2")
def test_jobs_write_their_page_and_its_figures_are_those_of_the_report(tmp_path):
    made = tmp_path / "page.html"
    sweep = ["run", "--sizes", "8:1M:x64", "--budget", "8", "--precision", "20%"]
    data = job(2, command=("bench", *sweep, "--html", str(made)), deadline=60).report["data"]
    text = unescape(made.read_text())
    rates = [each["busbw_GBps"] for each in data["rows"] if each["busbw_GBps"]]
    assert all(f">{rate:.3f}</td>" in text for rate in rates)
    assert text.count("<circle") == len(rates) > 0
    verdict = job(2, command=("bench", "pairs", "--size", "64K", "--html", str(made)), deadline=60)
    text = unescape(made.read_text())
    (_, there), (back, _) = verdict.report["data"]["pairs"]["GBps"]
    assert all(f">{float(f'{rate:.3g}'):g}</td>" in text for rate in (there, back))
    assert f'id="summary">{verdict.report["summary"]}<' in text

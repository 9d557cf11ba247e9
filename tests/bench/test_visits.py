"""Cases are visited in turn, several times; what passes by hurts a visit, not what is known."""

import io
from array import array

import pytest

from job import job
from oddrank.bench.arrival import Stamps
from oddrank.bench.case import Case
from oddrank.bench.live import Table
from oddrank.bench.plan import Task
from oddrank.bench.row import summarise
from oddrank.bench.timing import Timings
from oddrank.bench.visits import Series, in_turn


def task(backend, size):
    case = Case("all_reduce", "float32", size)
    return Task(backend, case, f"{backend} {case}")


TASKS = [task("nccl", 8), task("nccl", 16), task("c10d", 8)]


def test_all_cases_of_a_back_end_come_between_two_visits_to_one():
    told = [(visit.place, visit.number) for visit in in_turn(TASKS, 2)]
    assert told == [(0, 1), (1, 1), (0, 2), (1, 2), (2, 1), (2, 2)]
    names = [visit.name for visit in in_turn(TASKS, 2)]
    assert names[0] == TASKS[0].name
    assert len(set(names)) == len(names)


def timings(*us, starts=(0,)):
    return Timings(array("d", us), Stamps(array("q", starts), array("q", starts)))


def test_stamps_of_all_visits_are_on_one_clock_and_as_sure_as_the_worst():
    series = Series()
    series.add(timings(1, starts=(100, 200)), (5, 10))
    series.add(timings(1, starts=(300,)), (-7, 3))
    assert list(series.stamps.starts) == [105, 205, 293]
    assert list(series.stamps.gaps) == [100, 200, 300]
    assert series.clock_error == 10


def test_what_two_visits_agree_on_may_be_chance():
    series = Series()
    known = []
    for _ in range(3):
        series.add(timings(*[10.0] * 20), (0, 0))
        known.append(series.is_known(0.01))
    assert known == [False, False, True]
    series.add(timings(*[11.0] * 20), (0, 0))
    assert not series.is_known(0.01)


def row_of(one, *us):
    result = {"backend": one.backend, "times": [list(us)], "mismatch": None, "skipped": None,
              "arrival": None, "footprint": 0}  # fmt: skip
    return summarise(one.case, {0: result, 1: result}, 2)


def test_lines_keep_their_order_whichever_case_is_through_first():
    stream = io.StringIO()
    table = Table(stream, [one.name for one in TASKS])
    rows = {one.name: row_of(one, 10.0 * (place + 1)) for place, one in enumerate(TASKS)}
    table.add(TASKS[1].name, rows[TASKS[1].name])
    assert not stream.getvalue()
    table.add(TASKS[0].name, rows[TASKS[0].name])
    assert stream.getvalue().index("10.0") < stream.getvalue().index("20.0")
    assert "30.0" not in stream.getvalue()
    table.end(rows)  # what came in between the last one
    assert stream.getvalue().count("30.0") == 1
    assert stream.getvalue().count("20.0") == 1


def test_how_far_it_is_is_told_between_the_visits():
    stream = io.StringIO()
    table = Table(stream, [TASKS[0].name])
    for visit in in_turn(TASKS[:2], 3):
        table.tell(visit)
    assert stream.getvalue().splitlines() == [
        "all cases visited 1 of 3 times", "all cases visited 2 of 3 times",
    ]  # fmt: skip


@pytest.mark.needs("torch")
def test_what_hurts_one_visit_to_a_case_is_not_taken_for_the_case():
    size = "all_reduce float32 4 KiB"
    slow = f"late:rank=1,stage={size} (2),seconds=0.05"
    command = ("bench", "run", "--sizes", "1K,4K", "--budget", "8", "--target-cv", "1%")
    verdict = job(2, command=command, inject=slow, deadline=90)
    assert verdict.healthy(), str(verdict)
    rows = {row["bytes"]: row for row in verdict.report["data"]["rows"]}
    assert {row["visits"] for row in rows.values()} == {7}
    assert rows[4096]["median_us"] < 10_000
    assert max(rows[4096]["samples_us"]) > 25_000
    assert rows[4096]["error"] > rows[1024]["error"]

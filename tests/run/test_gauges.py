"""What `oddrank run --prometheus` writes of a running job."""

import json
import re
from pathlib import Path

from oddrank.control.stages import RankState
from oddrank.report import Report
from oddrank.run import outputs
from oddrank.run.watch import Watch
from prometheus_text import read
from reports import finding

ROOT = Path(__file__).parents[2]
RANKS = [
    RankState(0, "node0", contact="ok", stage="moving", step="7", progress=30),
    RankState(1, "node0", contact="ok", stage="quiet", step="6", progress=28),
    RankState(2, "node1", contact="ok", stage="quiet", state="dead", signal=9, progress=20),
    RankState(3),
    RankState(4, "node2", contact="silent", stage="quiet", progress=25),
]


def written(report=None):
    watch = Watch(0.0, 60.0)
    watch.feed(10.0, RANKS)
    text = outputs.gauges(
        RANKS, quiet=watch.quiet(25.0, RANKS), late={1: 0.5}, events=["late", "death", "late"],
        report=report, now=1.25,
    )  # fmt: skip
    return {name.removeprefix("oddrank_run_"): one for name, one in read(text).items()}


def of(family):
    return {tuple(value for _, value in labels): number for labels, number in family.items()}


def test_each_rank_that_came_has_its_figures():
    said = {name: of(family.samples) for name, family in written().items()}
    assert said == {
        "time_seconds": {(): 1.25},
        "ranks": {(): 5},
        "rank_alive": {("node0", "0"): 1, ("node0", "1"): 1, ("node1", "2"): 0},
        "rank_quiet_seconds": {("node0", "0"): 0, ("node0", "1"): 15},
        "rank_progress": {
            ("node0", "0"): 30,
            ("node0", "1"): 28,
            ("node1", "2"): 20,
            ("node2", "4"): 25,
        },
        "rank_step": {("node0", "0"): 7, ("node0", "1"): 6},
        "rank_late_seconds": {("node0", "1"): 0.5},
        "events": {("late",): 2, ("death",): 1},
    }


def test_a_report_tells_its_verdict_and_whom_it_names():
    # Rank 7 was started by a script that is one rank to its guard.
    found = [finding(2), finding(7)]
    said = written(Report.of("run", {"size": 5}, {}, found, complete=True))
    assert of(said["verdict"].samples)["odd",] == 1
    named = [(dict(labels)["rank"], dict(labels)["host"]) for labels in said["named"].samples]
    assert named == [("2", "node1"), ("7", "")]


def test_the_dashboard_asks_for_what_is_written():
    text = (ROOT / "examples" / "grafana.json").read_text()
    report = Report.of("run", {"size": 4}, {}, [finding(2)], complete=True)
    asked = set(re.findall(r"oddrank_run_(\w+)", text))
    assert asked <= set(written(report))
    assert all(panel["targets"] for panel in json.loads(text)["panels"])

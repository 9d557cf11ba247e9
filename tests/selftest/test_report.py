"""The report: all figures of every rank, shared facts once, no name twice."""

import json
import re
from random import Random

import pytest

from figures import measured, run_of
from oddrank.control.stages import RankState, RunState
from oddrank.control.walk import OVER, Outcome
from oddrank.launch import Launch
from oddrank.report import FAILING, write_json
from oddrank.selftest import Options
from oddrank.selftest.report import conclude, note_device, report_of
from oddrank.selftest.speed_judge import SPEED, TABLE
from oddrank.selftest.stages import environment, speed
from reports import valid


def outcome(world=4, device="CPU", **results):
    states = {r: RankState(r, f"node{r // 2}", r // 2, r % 2, contact="ok") for r in range(world)}
    joined = {rank: 1.0 + rank for rank in range(world)}
    return Outcome(RunState(world, states, results, device), joined=joined)


def report(outcome):
    return report_of(outcome, _launch(outcome.run.world), {}).envelope()


def _launch(world):
    return Launch("torchrun", 0, 0, world, 2, 0, world // 2, "node0", None, "job")


def test_every_rank_has_its_place_and_what_it_measured_by_stage():
    speed = {rank: {"copy": [1.0, 2.0 + rank]} for rank in range(4)}
    data = report(outcome(speed=speed, barrier=dict.fromkeys(range(4))))["data"]
    assert data["ranks"][3] == {
        "rank": 3, "host": "node1", "node": 1, "local_rank": 1, "device": "CPU",
        "metrics": {"speed": {"copy": [1.0, 5.0]}},
    }  # fmt: skip


def test_a_gpu_is_called_as_nvidia_smi_numbers_it():
    for visible, names in (
        ("3,2,1,0", ["GPU 3", "GPU 2"]), ("GPU-1b2c, GPU-9f", ["GPU-1b2c", "GPU-9f"]),
        (None, ["GPU 0", "GPU 1"]), ("5", ["GPU 5", "GPU 1"]),
    ):  # fmt: skip
        facts = {"gpus": 4, "local_world": 2, "gpu_id": None, "visible_gpus": visible}
        given = outcome(2, environment=dict.fromkeys(range(2), facts))
        note_device(environment.stage(Options()), given.run)
        assert [one["device"] for one in report(given)["data"]["ranks"]] == names
        assert [given.run.who([rank]).device for rank in range(2)] == names


def test_a_shared_fact_is_given_once_and_another_with_its_ranks():
    facts = {rank: {"gpus": 0, "torch": "2.13.0", "kernel": "6.1"} for rank in range(4)}
    facts[2]["kernel"] = "5.4"
    data = report(outcome(environment=facts))["data"]
    assert data["environment"] == {
        "common": {"gpus": 0, "torch": "2.13.0"},
        "differing": {
            "kernel": [{"ranks": "0-1,3", "value": "6.1"}, {"ranks": "2", "value": "5.4"}]
        },
        "not_readable": {},
    }
    assert all(rank["metrics"] == {} for rank in data["ranks"])


def test_a_fact_that_every_rank_has_for_itself_stands_with_the_rank():
    facts = {rank: {"gpus": 0, "id": f"GPU-{rank}"} for rank in range(100)}
    data = report(outcome(100, environment=facts))["data"]
    assert data["environment"]["differing"] == {}
    assert data["ranks"][42]["metrics"] == {"environment": {"id": "GPU-42"}}


def test_a_node_has_come_when_its_last_rank_has_and_a_rank_that_never_came_has_no_place():
    one = outcome()
    del one.joined[3]
    data = report(one)["data"]
    assert data["nodes"] == [
        {"host": "node0", "ranks": "0-1", "joined_s": 2.0},
        {"host": "node1", "ranks": "2-3", "joined_s": None},
    ]
    one.run.states[3] = RankState(3)
    place = report(one)["data"]["ranks"][3]
    assert [place[key] for key in ("host", "node", "local_rank")] == [None, None, None]


def test_of_many_ranks_each_is_one_line_and_of_few_each_figure_can_be_found(tmp_path):
    speed = {rank: {"copy": [float(rank)] * 9} for rank in range(100)}
    path = tmp_path / "report.json"
    write_json(report(outcome(100, speed=speed)), path)
    lines = [line for line in path.read_text().splitlines() if '"rank": 42' in line]
    assert [json.loads(line.strip().rstrip(","))["rank"] for line in lines] == [42]
    write_json(report(outcome(4, speed={0: {"copy": [1.0, 2.0]}})), path)
    assert '"copy": [1.0, 2.0]\n' in path.read_text()


def test_what_a_healthy_run_has_not_tested_is_in_its_summary(golden):
    facts = {rank: {"gpus": 0, "governor": None} for rank in range(4)}
    facts[1]["governor"] = "not readable"
    hurried, unread = outcome(), report(outcome(environment=facts))
    hurried.skipped = {"reach": "all ranks are on one host", "speed": OVER, "collectives": OVER}
    golden("\n".join(one["summary"] for one in (report(outcome()), report(hurried), unread)))
    assert unread["verdict"] == "healthy"
    assert unread["data"]["environment"]["not_readable"] == {"governor": "1"}


def test_a_report_knows_who_raised():
    made = outcome()
    made.run.states[1] = RankState(1, "node0", 0, 1, contact="ok", failed="closed")
    assert report_of(made, _launch(4), {}).raised == (1,)


@pytest.mark.needs("jinja2")
def test_the_page_has_each_figure_of_the_report_with_its_worst_rank(tmp_path):
    run = run_of([2, 2])
    run.results[SPEED] = measured(run, Random(1), noise=0.01, slow={"gpu_copy": {3: 0.5}})
    speed.stage(Options()).conclude(run)
    files = {"--json": str(tmp_path / "json"), "--html": str(tmp_path / "page")}
    conclude(Outcome(run, joined=dict.fromkeys(range(4), 1.0)), _launch(4), {}, files, FAILING)
    compared = valid((tmp_path / "json").read_text())["data"]["compared"]
    section = (tmp_path / "page").read_text().partition("<h2>Figures</h2>")[2]
    rows = [re.findall("<td.*?>(.*?)</td>", line) for line in section.split("<tr>")[1:]]
    shown = [(name.replace(" ", "_"), *others) for name, *others in filter(None, rows)]
    assert shown == [
        (one["metric"], one["class"], f"{one['median']:.4g} {one['unit']}",
         f"{one['worst']:.4g} {one['unit']}", str(one["worst_rank"]))
        for one in compared
    ]  # fmt: skip
    assert [one["worst_rank"] for one in compared if one["metric"] == "gpu_copy"] == [3]
    assert {one["metric"] for one in compared} == {one.name for one in TABLE}


@pytest.mark.parametrize(
    ("broken", "part"),
    [
        ("_gauges", "--prometheus"), ("exclude.text", "--write-exclude"), ("page.text", "--html"),
        ("_data_of_nodes", "data.nodes"), ("_data_of_facts", "data.environment"),
        ("as_data", "data.compared"), ("_all_well", "the summary of what was tested"),
    ],
)  # fmt: skip
def test_a_part_of_the_report_that_fails_is_a_finding_and_the_others_are_written(
    broken, part, monkeypatch, tmp_path, capfd
):
    def fail(*given):
        raise KeyError("node7")

    monkeypatch.setattr(f"oddrank.selftest.report.{broken}", fail)
    names = ("json", "exclude", "oddrank.prom", "page")
    report, exclude, figures, html = (str(tmp_path / name) for name in names)
    files = {"--json": report, "--write-exclude": exclude, "--prometheus": figures, "--html": html}
    code = conclude(outcome(), _launch(4), {}, files, FAILING)
    assert code == 1
    said = valid((tmp_path / "json").read_text())
    (found,) = said["findings"]
    assert (said["verdict"], found["cause"]) == ("unknown", "part-failed")
    assert f"{part} is left out" in found["what"]
    assert "KeyError: 'node7'" in found["what"]
    names_of = {"--prometheus": "oddrank.prom", "--write-exclude": "exclude", "--html": "page"}
    lost = names_of.get(part)
    assert [name for name in names if not (tmp_path / name).exists()] == [lost] * bool(lost)
    assert "selftest: unknown" in capfd.readouterr().out

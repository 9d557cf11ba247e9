"""Prometheus's file: a strict reader accepts it; every figure has its rank and stage."""

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.control.stages import RankState, RunState
from oddrank.finding import Who
from oddrank.report import Report
from oddrank.selftest import metrics, prometheus
from prometheus_text import read
from reports import finding

STAGES = {"stages": [{"name": "join", "seconds": 1.5}, {"name": "speed", "seconds": 3}]}


def families(*findings, hosts=("node0", "node1"), **results):
    states = {rank: RankState(rank, host) for rank, host in enumerate(hosts)}
    report = Report.of("selftest", {"size": len(hosts)}, STAGES, findings, complete=True)
    text = prometheus.text(report, RunState(len(hosts), states, results), 1.25)
    return {
        name.removeprefix("oddrank_selftest_"): {
            tuple(value for _, value in labels): number for labels, number in one.samples.items()
        }
        for name, one in read(text).items()
    }


def test_the_verdict_is_one_of_all_that_there_are():
    said = families(finding(1))
    assert said["verdict"] == {("healthy",): 0, ("odd",): 1, ("unknown",): 0, ("incomplete",): 0}
    assert said["stage_seconds"] == {("join",): 1.5, ("speed",): 3}
    assert said["ranks"] == {(): 2}
    assert said["time_seconds"] == {(): 1.25}


def test_a_figure_is_the_median_of_its_repeats_under_rank_host_and_stage():
    speed = {
        0: {"host_copy": [1, 5.0, 2], "facts": {"chip": "CPU"}},
        1: {"host_copy": [4.0], "pcie_to_host": [3]},
    }
    again = {0: {"host_copy": [7, 8]}, 1: None}
    train = {0: {"step_s": [0.2, 0.4], "own_s": [0.1], "loss": [3.5, 3.4], "sound": [True, True]}}
    connect = {0: {"backend": "gloo", "free": 1e9, "seconds": 1.5}}
    said = families(speed=speed, speed_recheck=again, train=train, connect=connect)
    assert said["measured_seconds"] == {
        ("node0", "step_s", "0", "train"): pytest.approx(0.3),
        ("node0", "own_s", "0", "train"): 0.1,
        ("node0", "seconds", "0", "connect"): 1.5,
    }
    assert said["measured_bytes_per_second"] == {
        ("node0", "host_copy", "0", "speed"): 2e9,
        ("node1", "host_copy", "1", "speed"): 4e9,
        ("node1", "pcie_to_host", "1", "speed"): 3e9,
        ("node0", "host_copy", "0", "speed_recheck"): 7.5e9,
    }


def test_figures_of_one_unit_are_a_family_that_ends_with_the_base_unit():
    speed = {0: {metric.name: [2.0] for metric in metrics.TABLE}}
    said = families(speed=speed, train={0: {"own_s": [2.0]}})
    told = {
        labels[1]: (family, value)
        for family, samples in said.items()
        if family.startswith("measured_")
        for labels, value in samples.items()
    }
    assert set(told) == {*speed[0], "own_s"}
    assert told["own_s"] == ("measured_seconds", 2.0)
    assert told["host_read"] == ("measured_bytes_per_second", 2e9)
    assert told["host_compute"] == ("measured_flop_per_second", 2e9)
    assert told["gemm_bf16"] == ("measured_flop_per_second", 2e12)


def test_what_is_no_figure_or_too_large_for_its_base_unit_is_no_metric():
    odd = ["text", None, 3, True, [], ["a"], [True], [math.nan], [[1]], [1e300], [1.7e308, 1.7e308]]
    for results in (
        *({"speed": {0: {"host_copy": value}, 1: None}} for value in odd),
        *({"connect": {0: {"seconds": value}, 1: None}} for value in (None, "1", True, math.inf)),
        {"connect": {0: {"seconds": [1.0]}}},
        {"localise": {0: {"wrong": [3, 7], "seconds": 9}}},
        {"speed": {0: {"ranks": [0, 1], "facts": {"places": [1]}}}},
    ):
        said = families(**results)
        assert not [family for family in said if family.startswith("measured_")], results


def test_a_named_rank_is_a_series_once_a_cause_with_the_highest_confidence():
    both = Who("node", (0, 1), "node0")
    said = families(finding(1), finding(1, level="low"), finding(who=both, condition="slow"))
    assert said["named"] == {
        ("host-stopped", "stuck", "high", "node1", "1"): 1,
        ("host-stopped", "slow", "high", "node0", "0"): 1,
        ("host-stopped", "slow", "high", "node1", "1"): 1,
    }
    assert said["findings"] == {("host-stopped", "stuck"): 2, ("host-stopped", "slow"): 1}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_host_name_is_escaped(host):
    said = families(hosts=(host,), speed={0: {"host_copy": [1]}})
    assert list(said["measured_bytes_per_second"]) == [(host, "host_copy", "0", "speed")]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=3))
def test_any_figure_is_read_back_in_its_base_unit_or_left_out(values):
    said = families(speed={0: {"host_copy": values}})
    value = median(values) * 1e9
    told = list(said.get("measured_bytes_per_second", {}).values())
    assert told == ([value] if math.isfinite(value) else [])

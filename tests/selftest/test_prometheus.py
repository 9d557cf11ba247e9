"""Prometheus's file: a strict reader accepts it; every named rank has its host and cause."""

from hypothesis import given
from hypothesis import strategies as st

from oddrank.finding import Who
from oddrank.report import Report
from oddrank.selftest import report as report_
from prometheus_text import read
from reports import finding

STAGES = {"stages": [{"name": "join", "seconds": 1.5}, {"name": "speed", "seconds": 3}]}


def families(*findings, hosts=("node0", "node1")):
    report = Report.of("selftest", {"size": len(hosts)}, STAGES, findings, complete=True)
    text = report_._gauges(report, dict(enumerate(hosts)), 1.25)
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
    said = families(finding(0), hosts=(host,))
    assert list(said["named"]) == [("host-stopped", "stuck", "high", host, "0")]

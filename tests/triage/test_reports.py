"""What the self-test found before the job is evidence, with its sentence and its host."""

import json
import os
import time
from pathlib import Path

import pytest

from oddrank.finding import Confidence, Finding, Who
from oddrank.report import Report
from oddrank.triage.evidence import Notes, reports
from oddrank.triage.facts import Trouble
from triage.facts_of import item_of


def finding(level="high", kind="gpu", condition="slow"):
    return Finding(
        condition=condition, who=Who(kind, (3,), "node1", "GPU 1"), cause="gpu-slow",
        what="rank 3 (node1, GPU 1) is slow: 8 % below its peers",
        confidence=Confidence(level, "measured twice"),
    )  # fmt: skip


def save(path: Path, *findings: Finding, tool: str = "selftest") -> Path:
    report = Report.of(tool, {"size": 4}, {}, findings, complete=True)
    path.write_text(json.dumps(report.envelope(), indent=1))
    return path


def read(*paths: Path) -> tuple[list[Trouble], Notes]:
    notes = Notes()
    items = [item_of(path, str(path)) for path in paths]
    found = list(reports.KIND.read([i for i in items if reports.KIND.sniff(i)], notes))
    return [fact for fact in found if isinstance(fact, Trouble)], notes


def test_a_finding_is_a_trouble_with_its_sentence_and_time(tmp_path):
    path = save(tmp_path / "selftest.json", finding())
    then = time.mktime((2026, 11, 22, 14, 5, 0, 0, 0, -1))
    os.utime(path, (then, then))
    (trouble,), notes = read(path)
    assert notes.lines == []
    assert trouble.text == (
        "the self-test of 2026-11-22 14:05 found: rank 3 (node1, GPU 1) is slow: 8 % below its"
        " peers (high confidence)"
    )
    assert (trouble.kind, trouble.host, trouble.device) == ("selftest", "node1", "GPU 1")
    assert (trouble.ranks, trouble.code, trouble.time) == ((3,), "gpu-slow", then)
    assert not trouble.fatal
    assert trouble.source.file == str(path)


@pytest.mark.parametrize(
    "silent", [finding(level="low"), finding(condition="unknown"), finding(kind="file")]
)
def test_what_names_nobody_is_none(tmp_path, silent):
    found, notes = read(save(tmp_path / "selftest.json", silent))
    assert (found, notes.lines) == ([], [])


def test_a_report_of_bench_is_read_and_one_of_triage_is_not(tmp_path):
    (trouble,), _ = read(save(tmp_path / "bench.json", finding(), tool="bench"))
    assert trouble.text.startswith("oddrank bench of ")
    found, notes = read(save(tmp_path / "triage.json", finding(), tool="triage"))
    assert found == []
    assert notes.lines[0].endswith("a report of oddrank triage is no evidence of a job")


@pytest.mark.parametrize(
    "broken",
    [
        "", ', "tool": "selftest"', ', "tool": "selftest", "findings": [4]}',
        ', "tool": "selftest", "findings": [{"condition": "slow"}]}', ', "tool": []}',
        ', "tool": "selftest", "findings": ' + "[" * 100_000,
        ', "tool": "selftest", "findings": [{"condition": "slow", "confidence": {"level": "high"}, '
        '"who": {"kind": "rank", "ranks": [Infinity]}, "what": "w", "cause": "c"}]}',
    ],
)  # fmt: skip
def test_a_broken_report_gives_a_line(tmp_path, broken):
    (tmp_path / "report.json").write_text('{"schema": "oddrank.report/1"' + broken)
    found, notes = read(tmp_path / "report.json")
    assert found == []
    assert len(notes.lines) == 1

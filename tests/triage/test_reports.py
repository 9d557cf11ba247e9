"""What the self-test found before the job is evidence, with its sentence and its host."""

import json
import os
import time
from pathlib import Path

from oddrank.finding import Confidence, Finding, Who
from oddrank.inputs import Notes
from oddrank.report import Report
from oddrank.triage.evidence import reports
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


def test_a_finding_is_a_trouble_with_its_sentence_and_time(tmp_path, golden):
    path = save(tmp_path / "selftest.json", finding())
    then = time.mktime((2026, 11, 22, 14, 5, 0, 0, 0, -1))
    os.utime(path, (then, then))
    (trouble,), notes = read(path)
    assert notes.lines == []
    assert (trouble.kind, trouble.host, trouble.device) == ("selftest", "node1", "GPU 1")
    assert (trouble.ranks, trouble.code, trouble.time) == ((3,), "gpu-slow", then)
    assert (trouble.fatal, trouble.source.file) == (False, str(path))
    bench = save(tmp_path / "bench.json", finding(), tool="bench")
    os.utime(bench, (then, then))
    (other,), _ = read(bench)
    golden(f"{trouble.text}\n{other.text}")


def test_what_names_nobody_and_a_report_of_triage_are_none(tmp_path):
    for silent in (finding(level="low"), finding(condition="unknown"), finding(kind="file")):
        found, notes = read(save(tmp_path / "selftest.json", silent))
        assert (found, notes.lines) == ([], []), silent
    found, notes = read(save(tmp_path / "triage.json", finding(), tool="triage"))
    assert found == []
    assert notes.lines[0].endswith("a report of oddrank triage is no evidence of a job")


def test_a_broken_report_gives_a_line(tmp_path):
    odd = {"condition": "slow", "confidence": {"level": "high"}, "what": "w", "cause": "c",
           "who": {"kind": "rank", "ranks": [float("inf")]}}  # fmt: skip
    selftest = ', "tool": "selftest"'
    for broken in (
        "", selftest, ', "tool": []}', f'{selftest}, "findings": [4]}}',
        f'{selftest}, "findings": [{{"condition": "slow"}}]}}',
        f'{selftest}, "findings": ' + "[" * 100_000,
        f'{selftest}, "findings": {json.dumps([odd])}}}',
    ):  # fmt: skip
        (tmp_path / "report.json").write_text('{"schema": "oddrank.report/1"' + broken)
        found, notes = read(tmp_path / "report.json")
        assert (found, len(notes.lines)) == ([], 1), broken[:60]

"""The verdict is the last thing that a user sees, also behind a launcher's own report."""

import json

import pytest

from faults import DEADLINE
from job import job
from oddrank import launch
from reports import finding, report


@pytest.mark.needs("torch")
def test_torchruns_own_report_ends_with_the_verdict_and_its_file():
    verdict = job(2, stop=1, at="environment", deadline=DEADLINE)
    assert verdict.names(rank=1, stage="environment"), str(verdict)
    last = " ".join(verdict.output.splitlines()[-3:])
    assert "new message format" not in verdict.output
    assert f"selftest: odd: {verdict.report['summary']}; report: /" in last


def test_only_torchrun_is_handed_the_verdict_and_an_unwritable_file_is_no_error(tmp_path):
    file = tmp_path / "error.json"
    ours = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "TORCHELASTIC_ERROR_FILE": str(file)}
    launch.tell_launcher("odd", ours)
    assert not file.exists()  # left over: this process was not started by torchrun
    launch.tell_launcher("odd", ours | {"TORCHELASTIC_RUN_ID": "1"})
    assert json.loads(file.read_text())["message"]["message"] == "odd"
    absent = str(tmp_path / "no" / "error.json")
    launch.tell_launcher(
        "odd", ours | {"TORCHELASTIC_RUN_ID": "1", "TORCHELASTIC_ERROR_FILE": absent}
    )


def test_a_healthy_run_hands_nothing_to_torchrun(tmp_path, monkeypatch, capsys):
    from oddrank import render

    file = tmp_path / "error.json"
    for name, value in {"RANK": "0", "TORCHELASTIC_RUN_ID": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    render.deliver(report(), None)
    assert not file.exists()
    render.deliver(report(finding(what="evil\x1b[2J")), None)
    assert json.loads(file.read_text())["message"]["message"] == "selftest: odd: evil\\x1b[2J"

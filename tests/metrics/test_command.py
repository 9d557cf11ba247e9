"""`oddrank metrics` as users call it: files, formats, growing logs, and bad input."""

import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys

import jsonschema
import pytest

import prometheus_text
from metrics.training_log import Fault, Training, line
from oddrank import cli
from oddrank.report import SCHEMA_FILE
from processes import until


@pytest.fixture
def oddrank(capsys):
    """Runs the command in this process: (exit code, stdout, stderr)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(["metrics", *map(str, arguments)])
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def spiky(tmp_path):
    training = Training(3, Fault("spike", 2.0), rows=1200)
    training.form = "megatron"
    log = tmp_path / "main_log.txt"
    log.write_text(training.text())
    return log


def test_the_report_the_rows_and_the_metrics_are_written(oddrank, spiky, tmp_path):
    code, said, _ = oddrank(
        spiky, "--json", tmp_path / "r.json", "--csv", tmp_path / "r.csv",
        "--prometheus", tmp_path / "r.prom",
    )  # fmt: skip
    assert code == 1
    report = json.loads((tmp_path / "r.json").read_text())
    jsonschema.validate(report, json.loads(SCHEMA_FILE.read_text()))
    (finding,) = report["findings"]
    assert finding["cause"] == "loss-spike"
    assert finding["what"] in said
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert len(rows) == report["data"]["rows"] == 1200
    assert float(rows[-1]["loss"]) == report["data"]["loss"]
    families = prometheus_text.read((tmp_path / "r.prom").read_text())
    assert families["oddrank_metrics_iteration"].samples[()] == report["data"]["iteration"]
    key = (("cause", "loss-spike"), ("condition", "suspicious"))
    assert families["oddrank_metrics_findings"].samples[key] == 1


def test_packed_logs_and_stdin_say_the_same(oddrank, spiky, tmp_path):
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(spiky.read_bytes()))
    said = {json.loads(oddrank(log, "--json", "-")[1])["summary"] for log in (spiky, packed)}
    with spiky.open() as log:
        command = [sys.executable, "-m", "oddrank", "metrics", "-", "--json", "-"]
        done = subprocess.run(command, stdin=log, capture_output=True, timeout=100, check=False)
    assert said == {json.loads(done.stdout)["summary"]}


def test_logs_of_one_training_are_merged_by_their_times(oddrank, spiky, tmp_path):
    lines = spiky.read_text().splitlines(keepends=True)
    parts = [tmp_path / "b", tmp_path / "a"]
    parts[0].write_text("".join(lines[600:]))
    parts[1].write_text("".join(lines[:600]))
    data = json.loads(oddrank(*parts, "--json", "-")[1])["data"]
    assert (data["rows"], data["restarts"]) == (1200, 0)


@pytest.mark.needs("matplotlib")
def test_a_picture_is_drawn(oddrank, spiky, tmp_path):
    assert oddrank(spiky, "--plot", tmp_path / "out.png")[0] == 1
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    few = tmp_path / "few"
    few.write_text("nothing here\n")
    assert oddrank(few, "--plot", tmp_path / "few.svg")[0] == 3
    assert (tmp_path / "few.svg").read_bytes().startswith(b"<?xml")


def test_a_log_without_numbers_gives_no_verdict(oddrank, tmp_path):
    log = tmp_path / "log"
    log.write_text("nothing\n")
    code, said, _ = oddrank(log)
    assert code == 3
    assert "no line of 1 log has numbers of a training in a known format" in said


def test_bad_input_is_one_line_that_says_what_to_do(oddrank, spiky, tmp_path):
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(spiky.read_bytes())[:100])
    for text, arguments in {
        "cannot read": [tmp_path / "none"],
        "no regular file": [tmp_path],
        "no picture": [spiky, "--plot", tmp_path / "x.txt"],
        "never be read": [spiky, "--prometheus", tmp_path / "x.txt"],
        "give --csv a file": [spiky, "--csv", tmp_path / "no" / "x.csv"],
        "give the logs of one training": [broken],
        "--follow reads files": ["-", "--follow"],
    }.items():
        code, said, error = oddrank(*arguments)
        assert (code, said) == (2, "")
        assert text in error
        assert len(error.splitlines()) == 1


def test_escapes_of_a_log_do_not_reach_the_terminal(oddrank, tmp_path):
    log = tmp_path / "\x1b[2Jlog"
    log.write_text("".join(f"{line(n)}\n" for n in range(1, 200)) + line(200, "nan") + "\n")
    code, said, _ = oddrank(log)
    assert code == 1
    assert "\x1b" not in said


@pytest.fixture
def following(tmp_path):
    """Starts --follow on a log; yields (log, said) where said() is what it printed until now."""
    log, out = tmp_path / "log", tmp_path / "said"
    log.write_text("")
    with out.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "oddrank", "metrics", str(log), "--follow", "--deadline", "100s",
             "--json", str(tmp_path / "r.json")],
            stdout=stream, stderr=subprocess.STDOUT,
        )  # fmt: skip
        yield log, out.read_text, process, tmp_path / "r.json"
        process.kill()
        process.wait()


def grow(log, first, last, **fields):
    with log.open("a") as file:
        file.writelines(f"{line(n, 2.5 + n % 3 / 100, **fields)}\n" for n in range(first, last))


def test_follow_says_each_finding_once_through_rotation_and_truncation(following):
    log, said, process, report = following

    def rows():
        return json.loads(report.read_text())["data"]["rows"] if report.exists() else 0

    grow(log, 1, 100)
    until(lambda: rows() == 99)
    with log.open("a") as file:
        file.write(f"{line(100, 'nan')}\n")
    until(lambda: "NaN" in said())
    os.rename(log, log.with_suffix(".1"))
    grow(log, 101, 150)
    until(lambda: rows() == 149)
    until(lambda: "a number again since iteration 101" in said())
    log.write_text("")
    grow(log, 150, 160)
    until(lambda: rows() == 159)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 1
    lines = said().splitlines()
    verdict = next(i for i, text in enumerate(lines) if text == "metrics: odd")
    assert sum("NaN" in text for text in lines[:verdict]) == 1
    assert sum("a number again since" in text for text in lines[:verdict]) == 1

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
from oddrank.report import SCHEMA_FILE
from processes import until


def oddrank(*arguments, text=None):
    command = [sys.executable, "-m", "oddrank", "metrics", *map(str, arguments)]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=100
    )


@pytest.fixture
def spiky(tmp_path):
    training = Training(3, Fault("spike", 2.0), rows=1200)
    training.form = "megatron"
    log = tmp_path / "main_log.txt"
    log.write_text(training.text())
    return log


def refused(*arguments):
    """Returns the only line of a call that could not run."""
    done = oddrank(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    return said


def test_the_report_the_rows_and_the_metrics_are_written(spiky, tmp_path):
    done = oddrank(
        spiky, "--json", tmp_path / "r.json", "--csv", tmp_path / "r.csv",
        "--prometheus", tmp_path / "r.prom",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    jsonschema.validate(report, json.loads(SCHEMA_FILE.read_text()))
    (finding,) = report["findings"]
    assert finding["cause"] == "loss-spike"
    assert finding["what"] in done.stdout
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert len(rows) == report["data"]["rows"] == 1200
    assert float(rows[-1]["loss"]) == report["data"]["loss"]
    families = prometheus_text.read((tmp_path / "r.prom").read_text())
    assert families["oddrank_metrics_iteration"].samples[()] == report["data"]["iteration"]
    key = (("cause", "loss-spike"), ("condition", "suspicious"))
    assert families["oddrank_metrics_findings"].samples[key] == 1


def test_packed_logs_and_stdin_say_the_same(spiky, tmp_path):
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(spiky.read_bytes()))
    said = {
        json.loads(done.stdout)["summary"]
        for done in (
            oddrank(spiky, "--json", "-"),
            oddrank(packed, "--json", "-"),
            oddrank("-", "--json", "-", text=spiky.read_text()),
        )
    }
    assert len(said) == 1


def test_logs_of_one_training_are_merged_by_their_times(spiky, tmp_path):
    lines = spiky.read_text().splitlines(keepends=True)
    parts = [tmp_path / "b", tmp_path / "a"]
    parts[0].write_text("".join(lines[600:]))
    parts[1].write_text("".join(lines[:600]))
    data = json.loads(oddrank(*parts, "--json", "-").stdout)["data"]
    assert (data["rows"], data["restarts"]) == (1200, 0)


@pytest.mark.needs("matplotlib")
def test_a_picture_is_drawn(spiky, tmp_path):
    done = oddrank(spiky, "--plot", tmp_path / "out.png")
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    few = tmp_path / "few"
    few.write_text("nothing here\n")
    assert oddrank(few, "--plot", tmp_path / "few.svg").returncode == 3
    assert (tmp_path / "few.svg").read_bytes().startswith(b"<?xml")


def test_a_log_without_numbers_gives_no_verdict(tmp_path):
    log = tmp_path / "log"
    log.write_text("nothing\n")
    done = oddrank(log)
    assert done.returncode == 3
    assert "no line of 1 log has numbers of a training in a known format" in done.stdout


def test_bad_input_is_one_line(spiky, tmp_path):
    assert "cannot read" in refused(tmp_path / "none")
    assert "no regular file" in refused(tmp_path)
    assert "no picture" in refused(spiky, "--plot", tmp_path / "x.txt")
    assert "never be read" in refused(spiky, "--prometheus", tmp_path / "x.txt")
    assert "--csv" in refused(spiky, "--csv", tmp_path / "no" / "x.csv")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(spiky.read_bytes())[:100])
    assert "cannot read" in refused(broken)


def test_escapes_of_a_log_do_not_reach_the_terminal(tmp_path):
    log = tmp_path / "\x1b[2Jlog"
    log.write_text("".join(f"{line(n)}\n" for n in range(1, 200)) + line(200, "nan") + "\n")
    done = oddrank(log)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout


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

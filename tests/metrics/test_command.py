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
from patience import until


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
    assert "no line of 1 log has numbers of a training in a known format: give the log" in said


def test_bad_input_is_one_line_that_says_what_to_do(oddrank, spiky, tmp_path):
    for text, arguments in {
        "cannot read": [tmp_path / "none"],
        "cannot read ''": [""],
        "is a folder: give the logs in it": [tmp_path],
        "neither file nor pipe": ["/dev/zero"],
        "no picture": [spiky, "--plot", tmp_path / "x.txt"],
        "never be read": [spiky, "--prometheus", tmp_path / "x.txt"],
        "give --csv a file": [spiky, "--csv", tmp_path / "no" / "x.csv"],
        "--follow reads files": ["-", "--follow"],
        "--deadline ends --follow": [spiky, "--deadline", "3"],
        "only one of --csv and --json can be -": [spiky, "--csv", "-", "--json", "-"],
    }.items():
        code, said, error = oddrank(*arguments)
        assert (code, said) == (2, "")
        assert text in error
        assert len(error.splitlines()) == 1


@pytest.mark.parametrize("option", ["--csv", "--json", "--plot", "--prometheus"])
def test_a_log_is_never_overwritten(oddrank, spiky, tmp_path, option):
    text = spiky.read_bytes()
    suffix = {"--plot": ".png", "--prometheus": ".prom"}.get(option, "")
    link = tmp_path / f"link{suffix}"
    link.symlink_to(spiky.name)
    code, said, error = oddrank(spiky, option, link)
    assert (code, said) == (2, "")
    assert f"{link} is also an input: give another file" in error
    assert len(error.splitlines()) == 1
    assert spiky.read_bytes() == text


def test_where_stdout_is_full_the_table_goes_to_stderr_too(tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"{line(n, 2.5 + n % 3 / 100)}\n" for n in range(1, 100)))
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run(
            [sys.executable, "-m", "oddrank", "metrics", str(log)],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "iteration" in done.stderr
    assert "metrics: healthy" in done.stderr


def test_a_command_to_type_is_printed_once(oddrank, tmp_path):
    lines = [line(n, 2.5 + n % 3 / 100) for n in range(1, 300)]
    for first in (100, 200):
        lines[first] = line(first + 1, "nan")
    (tmp_path / "log").write_text("".join(f"{text}\n" for text in lines))
    said = oddrank(tmp_path / "log")[1]
    assert said.count("broken (nan-loss)") == 2
    assert said.count("watch_nonfinite") == 1


def test_the_column_time_holds_dates_only(oddrank, tmp_path):
    bars = tmp_path / "bars"
    bars.write_text(
        "".join(
            f"{n}%|   | {n}/100 [00:{n:02d}<01:30,  1.00s/it]\r{{'loss': 2.5, 'epoch': 0.1}}\n"
            for n in range(1, 50)
        )
    )
    dated = tmp_path / "dated"
    stamp = "2026-01-01 00:00:{:02d}"
    dated.write_text("".join(f"{line(n, time=stamp.format(n))}\n" for n in range(1, 50)))
    for log, time, run_seconds in ((bars, "", "49"), (dated, "1767225649", "")):
        data = json.loads(oddrank(log, "--json", "-", "--csv", tmp_path / "r.csv")[1])["data"]
        last = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))[-1]
        assert (last["time"], last["run_seconds"]) == (time, run_seconds)
        assert data["last_time"] == (float(time) if time else None)


def test_a_loss_that_is_nan_is_shown_as_nan(oddrank, tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"{line(n)}\n" for n in range(1, 100)) + f"{line(100, 'nan')}\n")
    said = oddrank(log, "--json", tmp_path / "r.json", "--prometheus", tmp_path / "r.prom")[1]
    assert said.splitlines()[2].split()[2] == "nan"
    data = json.loads((tmp_path / "r.json").read_text())["data"]
    assert (data["loss"], data["loss_is_nan"]) == (None, True)
    assert "oddrank_metrics_loss nan\n" in (tmp_path / "r.prom").read_text()


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
    assert "log:100: broken (nan-loss)" in said()
    lines = said().splitlines()
    verdict = next(i for i, text in enumerate(lines) if text == "metrics: odd")
    assert sum("NaN" in text for text in lines[:verdict]) == 1
    assert sum("a number again since" in text for text in lines[:verdict]) == 1


def test_lines_count_from_1_after_rotation_and_truncation(following):
    log, said, process, report = following

    def rows():
        return json.loads(report.read_text())["data"]["rows"] if report.exists() else 0

    grow(log, 1, 100)
    until(lambda: rows() == 99)
    os.rename(log, log.with_suffix(".1"))
    grow(log, 100, 150)
    until(lambda: rows() == 149)
    log.write_text("")
    grow(log, 150, 153)
    until(lambda: rows() == 152)
    grow(log, 153, 160)
    with log.open("a") as file:
        file.write(f"{line(160, 'nan')}\n")
    until(lambda: "NaN" in said())
    assert "log:11: the loss is NaN" in said()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 1


def test_sigterm_ends_follow_with_the_report(following):
    log, said, process, report = following
    grow(log, 1, 100)
    until(report.exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    assert "metrics: healthy" in said()
    assert json.loads(report.read_text())["verdict"] == "healthy"


@pytest.mark.parametrize("ends", ["signal", "deadline"])
def test_what_comes_while_follow_sleeps_for_the_last_time_is_read(tmp_path, ends):
    log, report = tmp_path / "log", tmp_path / "r.json"
    log.write_text("".join(f"{line(n, 2.5)}\n" for n in range(1, 100)))
    script = f"""
import os, signal, sys, time
from oddrank import cli
from oddrank.metrics import growing
sleep = time.sleep
def sleeps(seconds):
    with open(sys.argv[2], "a") as file:
        file.write({line(100, "nan") + chr(10)!r})
    if {ends!r} == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        sleep(seconds)
        growing.time.monotonic = lambda: float("inf")
growing.time.sleep = sleeps
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, "metrics", log, "--follow", "--deadline", "1d", "--json",
         report],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert json.loads(report.read_text())["data"]["rows"] == 100
    assert "NaN" in done.stdout


def test_a_line_that_is_half_written_when_follow_begins_is_read_whole(tmp_path):
    log, report = tmp_path / "log", tmp_path / "r.json"
    text = "".join(f"{line(n, 2.5)}\n" for n in range(1, 101))
    log.write_text(text[:-40])
    process = subprocess.Popen(
        [sys.executable, "-m", "oddrank", "metrics", str(log), "--follow", "--deadline", "100s",
         "--json", str(report)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        until(report.exists)
        with log.open("a") as file:
            file.write(text[-40:])
        until(lambda: json.loads(report.read_text())["data"]["rows"] == 100)
        data = json.loads(report.read_text())["data"]
        assert (data["iteration"], data["lines"], data["loss"]) == (100, 100, 2.5)
    finally:
        process.kill()
        process.wait()

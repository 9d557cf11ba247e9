"""`oddrank metrics` as users call it: files, formats, growing logs, and bad input."""

import csv
import io
import json
import os
import signal
import subprocess
import sys

import pytest

from metrics.training_log import Fault, Training, lines, stamp
from patience import PATIENCE, until
from processes import captured
from reports import valid
from texts import texts

METRICS = [sys.executable, "-m", "oddrank", "metrics"]


@pytest.fixture
def spiky(tmp_path):
    training = Training(3, Fault("spike", 2.0), rows=1200)
    training.form = "megatron"
    log = tmp_path / "main_log.txt"
    log.write_text(training.text())
    return log


def test_the_report_and_the_rows_are_written(oddrank, spiky, tmp_path):
    code, said, _ = oddrank(spiky, "--json", tmp_path / "r.json", "--csv", tmp_path / "r.csv")
    assert code == 1
    report = valid((tmp_path / "r.json").read_text())
    (finding,) = report["findings"]
    assert finding["cause"] == "loss-spike"
    assert finding["what"] in said
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert len(rows) == report["data"]["rows"] == 1200
    assert float(rows[-1]["loss"]) == report["data"]["loss"]


def test_logs_of_one_training_are_merged_by_their_times(oddrank, spiky, tmp_path):
    lines = spiky.read_text().splitlines(keepends=True)
    parts = [tmp_path / "b", tmp_path / "a"]
    parts[0].write_text("".join(lines[600:]))
    parts[1].write_text("".join(lines[:600]))
    data = json.loads(oddrank(*parts, "--json", "-")[1])["data"]
    assert (data["rows"], data["restarts"]) == (1200, 0)


@pytest.mark.needs("matplotlib")
def test_a_picture_is_written(oddrank, spiky, tmp_path):
    assert oddrank(spiky, "--plot", tmp_path / "out.png")[0] == 1
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    few = tmp_path / "few"
    few.write_text("nothing here\n")
    assert oddrank(few, "--plot", tmp_path / "few.svg")[0] == 3
    assert (tmp_path / "few.svg").read_bytes().startswith(b"<?xml")


def test_few_rows_and_none_give_no_verdict(oddrank, tmp_path, golden):
    said = []
    for name, text in {"none": "nothing\n", "44": lines(1, 45), "45": lines(1, 46)}.items():
        log = tmp_path / name
        log.write_text(text)
        code, shown, _ = oddrank(log)
        assert code == (0 if name == "45" else 3), name
        said.append(shown)
    golden("\n".join(said))


def test_bad_input_is_one_line_that_says_what_to_do(refused, spiky, tmp_path, golden):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "utf16").write_text("iteration 1 | loss 2\n", encoding="utf-16")
    lines = [
        refused(*arguments)
        for arguments in (
            [tmp_path / "none"], [""], ["/dev/zero"], [tmp_path / "pipe", "--follow"],
            [tmp_path / "empty", tmp_path / "binary"],
            [spiky, "--plot", tmp_path / "x.txt"], [spiky, "--csv", tmp_path / "no" / "x.csv"],
            ["-", "--follow"],
            [tmp_path / "utf16", "--follow"],
            [spiky, "--deadline", "3"], [spiky, "--csv", "-", "--json", "-"],
        )
    ]  # fmt: skip
    golden("\n".join(lines).replace(str(tmp_path), "FOLDER"))


@pytest.mark.parametrize("option", ["--csv", "--json", "--plot"])
def test_a_log_is_never_overwritten(refused, spiky, tmp_path, option):
    text = spiky.read_bytes()
    suffix = ".png" if option == "--plot" else ""
    link = tmp_path / f"link{suffix}"
    link.symlink_to(spiky.name)
    assert f"{link} is also an input: give another file" in refused(spiky, option, link)
    assert spiky.read_bytes() == text


def test_where_stdout_is_full_the_table_goes_to_stderr_too(tmp_path):
    log = tmp_path / "log"
    log.write_text(lines(1, 100))
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([*METRICS, log], stdout=full, stderr=subprocess.PIPE, text=True,
                              check=False)  # fmt: skip
    assert done.returncode == 2
    for text in ("No space left", "iteration", "metrics: healthy"):
        assert text in done.stderr


def test_what_is_shown_of_a_log(oddrank, tmp_path):
    # A command to type is printed once.
    log = tmp_path / "log"
    log.write_text(lines(1, 100) + lines(100, 101, loss="nan") + lines(101, 200)
                   + lines(200, 201, loss="nan") + lines(201, 300))  # fmt: skip
    said = oddrank(log)[1]
    assert (said.count("broken (nan-loss)"), said.count("watch_nonfinite")) == (2, 1)
    # A loss that is NaN is shown as nan.
    log.write_text(lines(1, 100) + lines(100, 101, loss="nan"))
    said = oddrank(log, "--json", tmp_path / "r.json")[1]
    assert said.splitlines()[2].split()[2] == "nan"
    data = json.loads((tmp_path / "r.json").read_text())["data"]
    assert (data["loss"], data["loss_is_nan"]) == (None, True)
    # Escapes of a log and of its name do not reach the terminal.
    log = log.rename(tmp_path / "\x1b[2Jlog")
    code, said, _ = oddrank(log)
    assert (code, "\x1b" in said) == (1, False)


def test_the_column_time_holds_dates_only(oddrank, tmp_path):
    bars, dated = tmp_path / "bars", tmp_path / "dated"
    bar = "{0}%|   | {0}/100 [00:{0:02d}<01:30,  1.00s/it]\r{{'loss': 2.5, 'epoch': 0.1}}\n"
    bars.write_text("".join(bar.format(n) for n in range(1, 50)))
    dated.write_text("".join(lines(n, n + 1, time=stamp(n)) for n in range(1, 50)))
    for log, time, run_seconds in ((bars, "", "49"), (dated, "1767225649", "")):
        data = json.loads(oddrank(log, "--json", "-", "--csv", tmp_path / "r.csv")[1])["data"]
        last = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))[-1]
        assert (last["time"], last["run_seconds"]) == (time, run_seconds)
        assert data["last_time"] == (float(time) if time else None)


class Follow:
    """--follow of a log, and what it has said and reported until now."""

    def __init__(self, folder, text=""):
        self.log, self.out, self.made = (folder / name for name in ("log", "said", "r.json"))
        self.log.write_text(text)
        with self.out.open("w") as stream:
            self.process = subprocess.Popen(
                [*METRICS, self.log, "--follow", "--deadline", "1h", "--json", self.made],
                stdout=stream, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def said(self):
        return self.out.read_text()

    def report(self):
        return json.loads(self.made.read_text()) if self.made.exists() else {"data": {"rows": -1}}

    def until_rows(self, count):
        until(lambda: self.report()["data"]["rows"] == count)

    def grow(self, text, rows=None):
        with self.log.open("a") as file:
            file.write(text)
        if rows is not None:
            self.until_rows(rows)

    def end(self, signal_, code):
        self.process.send_signal(signal_)
        assert self.process.wait(PATIENCE.limit) == code


@pytest.fixture
def follow(tmp_path):
    """Starts --follow on a log."""
    started = []

    def start(text=""):
        started.append(Follow(tmp_path, text))
        return started[0]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def test_follow_says_each_finding_once_through_rotation_and_truncation(follow):
    job = follow()
    job.grow(lines(1, 100), rows=99)
    job.grow(lines(100, 101, loss="nan"))
    until(lambda: "NaN" in job.said())
    os.rename(job.log, job.log.with_suffix(".1"))
    job.grow(lines(101, 150), rows=149)
    until(lambda: "a number again since iteration 101" in job.said())
    job.log.write_text("")
    job.grow(lines(150, 160), rows=159)
    job.grow(lines(160, 161, loss="nan"))  # lines count from 1 in each file
    until(lambda: "log:11: the loss is NaN" in job.said())
    job.end(signal.SIGINT, code=1)
    assert "log:100: broken (nan-loss)" in job.said()
    before = job.said().partition("metrics: odd")[0]
    assert (before.count("NaN"), before.count("a number again since")) == (2, 1)


def test_sigterm_ends_follow_with_the_report(follow):
    job = follow()
    job.grow(lines(1, 100))
    until(job.made.exists)
    job.end(signal.SIGTERM, code=0)
    assert "metrics: healthy" in job.said()
    assert job.report()["verdict"] == "healthy"


def test_a_line_that_is_half_written_when_follow_begins_is_read_whole(follow):
    text = lines(1, 101, loss=2.5)
    job = follow(text[:-40])
    until(job.made.exists)
    job.grow(text[-40:], rows=100)
    data = job.report()["data"]
    assert (data["iteration"], data["lines"], data["loss"]) == (100, 100, 2.5)


@pytest.mark.parametrize("ends", ["signal", "deadline"])
def test_what_comes_while_follow_sleeps_for_the_last_time_is_read(tmp_path, ends):
    log, report = tmp_path / "log", tmp_path / "r.json"
    log.write_text(lines(1, 100, loss=2.5))
    script = texts(__file__)["sleeps"].replace("ENDS", repr(ends))
    script = script.replace("LINE", repr(lines(100, 101, loss="nan")))
    options = ["--follow", "--deadline", "1d", "--json", report]
    done = captured([sys.executable, "-c", script, "metrics", log, *options])
    assert done.returncode == 1, done.stdout + done.stderr
    assert json.loads(report.read_text())["data"]["rows"] == 100
    assert "NaN" in done.stdout

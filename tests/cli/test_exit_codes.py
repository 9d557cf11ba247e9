"""The ends of commands as a shell sees them: exit code, stdout, stderr."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import pytest

from oddrank import cli
from oddrank.cli import Seconds
from oddrank.report import EXIT_CODES, FAILING
from patience import PATIENCE
from processes import typed
from texts import texts

TESTS = Path(__file__).parents[1]
MAIN = texts(__file__)["main"]


def oddrank(*arguments, cwd=None, stdout=subprocess.PIPE, shell=(), **environ):
    return subprocess.run(
        [*shell, sys.executable, "-c", MAIN, *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS), **environ}, cwd=cwd, text=True,
        stdout=stdout, stderr=subprocess.PIPE, timeout=PATIENCE.limit, check=False,
    )  # fmt: skip


@pytest.fixture
def judge(monkeypatch):
    """Runs `oddrank judge` in this process."""
    monkeypatch.setitem(cli._COMMANDS, "judge", ("cli.judging", "Judge a job of four ranks."))
    return partial(typed, "judge")


def test_the_verdict_is_the_exit_code_and_fail_on_picks_which_verdicts_fail(judge):
    for line, code in (
        ("none", 0), ("odd", 1), ("deadline", 3), ("odd --fail-on odd", 1),
        ("odd --fail-on incomplete", 0), ("odd --fail-on none", 0), ("deadline --fail-on odd", 0),
        ("deadline --fail-on odd,incomplete", 3), ("unknown", 1), ("unknown --fail-on odd", 0),
        ("odd --fail-on UNKNOWN,Odd,", 1), ("odd --fail-on NONE", 0),
    ):  # fmt: skip
        assert judge(*line.split()).returncode == code, line


def test_help_says_with_which_code_each_verdict_fails(judge):
    said = " ".join(judge("--help").stdout.split())
    text = said.partition("--fail-on LIST")[2]
    assert all(verdict in text for verdict in FAILING)
    one, _, three = text.partition("1 for ")[2].partition("3 for ")
    assert {verdict for verdict in FAILING if verdict in one} == {"odd", "unknown"}
    assert re.match(r"incomplete \([^)]*\)\.", three)
    assert {EXIT_CODES[verdict] for verdict in ("odd", "unknown")} == {1}
    assert EXIT_CODES["incomplete"] == 3


def test_bad_input_is_one_line_that_says_what_to_do_and_nothing_runs(judge, golden):
    lines = []
    for arguments in (
        ["--no-such-option"], ["no-such-command"], ["judge", "--no-such-option"],
        ["selftst"], ["help"], ["version"], ["trace", "wher"],
        ["trace", "tail", "0", "-n", "9" * 20], ["run", "--stall", "1e400", "train.py"],
        ["run", "--report-every", "1e300", "train.py"], ["collect", "--limit", "9999999999G"],
        ["run", "--stal", "5", "train.py"], ["run", "--jsn=v.json", "train.py"], ["run", "-x"],
        ["judge", "one", "too-many"], ["judge", "--json"], ["judge", "--json", ""],
        ["judge", "--json", "/no/such/folder/report.json"], ["judge", "--fail-on", "red"],
        ["judge", "--fail-on", "healthy"], ["judge", "--fail-on", ""],
        ["judge", "--fail-on", "none,odd"],
    ):  # fmt: skip
        run = typed(*arguments)
        assert (run.returncode, run.stdout) == (2, ""), arguments
        assert run.stderr.count("\n") == 1, arguments
        lines.append(f"{' '.join(arguments)}\n  {run.stderr}")
    golden("".join(lines))


def test_an_error_of_ours_is_one_harmless_line_a_bug_a_traceback_and_an_interrupt_silent():
    run = oddrank("judge", "refuse")
    last = run.stderr.splitlines()[-1]
    assert last == "oddrank: no rank \\x1b[2J is here: start one\\nsecond line"
    bug, interrupt = oddrank("judge", "bug"), oddrank("judge", "interrupt")
    assert [one.returncode for one in (run, bug, interrupt)] == [2, 1, 130]
    assert ["Traceback" in one.stderr for one in (run, bug, interrupt)] == [False, True, False]
    assert "ValueError: a bug" in bug.stderr


def test_a_working_directory_that_was_deleted_is_a_line(tmp_path):
    for arguments in (
        ["collect"], ["collect", "-o", "evidence", "job"], ["run", "-m", "module"],
        ["selftest", "--quick"],
    ):  # fmt: skip
        (tmp_path / "gone").mkdir()
        run = oddrank(
            *arguments, cwd=tmp_path / "gone", shell=("sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh")
        )
        assert run.returncode == 2, arguments
        last = run.stderr.splitlines()[-1]
        assert last == "oddrank: the working directory is gone: cd to a folder that exists"
        assert "Traceback" not in run.stderr


def test_a_reader_that_leaves_early_is_no_error_of_ours():
    run = subprocess.Popen(
        [sys.executable, "-c", MAIN, "judge", "flood"],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    run.stdout.read(1)
    run.stdout.close()
    assert run.wait(PATIENCE.limit) == 141
    assert b"Error" not in run.stderr.read()


def judged(stdout, *arguments):
    """Returns exit code and stderr of a command that names a rank; its output goes to `stdout`."""
    run = oddrank("judge", "odd", *arguments, stdout=stdout)
    assert "Traceback" not in run.stderr
    return run.returncode, run.stderr


@pytest.mark.parametrize("arguments", [[], ["--json", "-"]])
def test_a_reader_that_has_gone_does_not_change_the_verdict(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    assert judged(writer, *arguments)[0] == 1
    os.close(writer)


def test_where_stdout_is_full_the_verdict_goes_to_stderr_and_json_is_an_error_of_one_line():
    for arguments, code in (((), 1), (("--json", "-"), 2)):
        with open("/dev/full", "w", encoding="ascii") as full:
            ended, said = judged(full, *arguments)
        assert (ended, said.count("No space left")) == (code, 1)
        assert "rank 2" in said


def with_closed(streams, *arguments):
    """Runs a command whose stdout or stderr the caller has closed, as `>&-` does."""
    return oddrank(*arguments, shell=["sh", "-c", f'exec "$@" {streams}', "sh"])


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_exit_code_and_make_no_traceback(streams):
    for line, code in (("judge odd", 1), ("judge refuse", 2), ("--help", 0), ("--wrong", 2)):
        run = with_closed(streams, *line.split())
        assert run.returncode == code, line
        assert "Traceback" not in run.stdout + run.stderr


def test_the_verdict_goes_to_stderr_where_stdout_is_closed(tmp_path):
    run = with_closed(">&-", "judge", "odd", "--json", str(tmp_path / "report.json"))
    assert "selftest: odd" in run.stderr
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "odd"


def test_a_full_disk_under_stdout_is_one_line():
    with open("/dev/full", "w", encoding="ascii") as full:
        run = oddrank("plan", "mfu", stdout=full)
    assert run.returncode == 2
    assert run.stderr == "oddrank: cannot write to stdout: No space left on device\n"


def test_json_is_alone_in_its_file_or_on_stdout_and_the_verdict_goes_to_people(tmp_path):
    run = oddrank("judge", "odd", "--json", "-")
    assert json.loads(run.stdout)["verdict"] == "odd"
    assert "rank 2" in run.stderr
    run = oddrank("judge", "odd", "--json", "report.json", cwd=tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "odd"
    assert "rank 2" in run.stdout
    assert os.listdir(tmp_path) == ["report.json"]


def test_only_rank_0_needs_the_folder_of_the_json_file():
    environ = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "n1"}
    absent = ["judge", "--json", "/no/such/folder/report.json"]
    assert "running" not in oddrank(*absent, RANK="0", **environ).stderr
    assert "running" in oddrank(*absent, RANK="1", **environ).stderr


def test_one_rank_of_each_node_complains_about_the_command_line_they_share():
    environ = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "localhost"}
    silent = oddrank("judge", "--no-such-option", LOCAL_RANK="1", **environ)
    assert (silent.returncode, silent.stderr) == (2, "")
    assert "No such option" in oddrank("--no-such-option", LOCAL_RANK="0", **environ).stderr


def test_a_time_is_in_seconds_or_has_a_unit_and_is_in_range():
    def read(text):
        return Seconds(1, 86400).convert(text, None, None)

    for text, seconds in (
        ("60", 60), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400), (300, 300),
    ):  # fmt: skip
        assert read(text) == seconds
    for text in ("nan", "", "s", "1w", "60 apples", "0.5", "25h", "inf"):
        with pytest.raises(click.BadParameter):
            read(text)

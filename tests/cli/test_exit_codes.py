"""The ends of commands as a shell sees them: exit code, stdout, stderr."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from oddrank.cli import Seconds
from oddrank.report import EXIT_CODES, FAILING

TESTS = Path(__file__).parents[1]
MAIN = """
import sys
from oddrank import cli
cli._COMMANDS["judge"] = ("cli.judging", "Judge a job of four ranks.")
cli.main()
"""


def oddrank(*arguments, cwd=None, **environ):
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS), **environ},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(("fault", "code"), [("none", 0), ("odd", 1), ("deadline", 3)])
def test_the_verdict_is_the_exit_code(fault, code):
    assert oddrank("judge", fault).returncode == code


@pytest.mark.parametrize(
    ("fault", "fail_on", "code"),
    [
        ("odd", "odd", 1),
        ("odd", "incomplete", 0),
        ("odd", "none", 0),
        ("deadline", "odd", 0),
        ("deadline", "odd,incomplete", 3),
    ],
)
def test_fail_on_picks_which_verdicts_fail(fault, fail_on, code):
    assert oddrank("judge", fault, "--fail-on", fail_on).returncode == code


def test_help_says_with_which_code_each_verdict_fails():
    said = " ".join(oddrank("judge", "--help").stdout.split())
    text = said.partition("--fail-on LIST")[2]
    assert all(verdict in text for verdict in FAILING)
    one, three = text.partition("fail with 1")[0], text.partition("fail with 1")[2]
    assert {verdict for verdict in FAILING if verdict in one} == {"odd", "unknown"}
    assert re.search(r"incomplete \([^)]*\) with 3\.", three)
    assert {EXIT_CODES[verdict] for verdict in ("odd", "unknown")} == {1}
    assert EXIT_CODES["incomplete"] == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such-option"],
        ["no-such-command"],
        ["judge", "--no-such-option"],
        ["judge", "one", "too-many"],
        ["judge", "--json"],
        ["judge", "--json", ""],
        ["judge", "--json", "/no/such/folder/report.json"],
        ["judge", "--fail-on", "red"],
        ["judge", "--fail-on", "healthy"],
        ["judge", "--fail-on", ""],
    ],
)
def test_bad_input_is_one_line_that_says_what_to_do_and_nothing_runs(arguments):
    run = oddrank(*arguments)
    assert run.returncode == 2
    assert run.stdout == ""
    assert len(run.stderr.splitlines()) == 1
    assert "--help" in run.stderr or "--json" in run.stderr


def test_an_error_of_ours_is_one_harmless_line():
    run = oddrank("judge", "refuse")
    assert run.returncode == 2
    last = run.stderr.splitlines()[-1]
    assert last == "oddrank: no rank \\x1b[2J is here: start one\\nsecond line"


def test_an_unexpected_exception_keeps_its_traceback():
    run = oddrank("judge", "bug")
    assert run.returncode == 1
    assert "Traceback" in run.stderr
    assert "ValueError: a bug" in run.stderr


def test_an_interrupt_is_130_without_a_traceback():
    run = oddrank("judge", "interrupt")
    assert run.returncode == 130
    assert "Traceback" not in run.stderr


def test_a_reader_that_leaves_early_is_no_error_of_ours():
    run = subprocess.Popen(
        [sys.executable, "-c", MAIN, "judge", "flood"],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    run.stdout.read(1)
    run.stdout.close()
    assert run.wait(timeout=60) == 141
    assert b"Error" not in run.stderr.read()


def judged(stdout, *arguments):
    """Returns exit code and stderr of a command that names a rank; its output goes to `stdout`."""
    run = subprocess.run(
        [sys.executable, "-c", MAIN, "judge", "odd", *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in run.stderr
    return run.returncode, run.stderr


@pytest.mark.parametrize("arguments", [[], ["--json", "-"]])
def test_a_reader_that_has_gone_does_not_change_the_verdict(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    assert judged(writer, *arguments)[0] == 1
    os.close(writer)


def test_where_stdout_is_full_the_verdict_goes_to_stderr():
    with open("/dev/full", "w", encoding="ascii") as full:
        code, said = judged(full)
    assert code == 1
    assert "No space left" in said
    assert "rank 2" in said


def test_json_that_does_not_fit_is_an_error_of_one_line_beside_the_verdict():
    with open("/dev/full", "w", encoding="ascii") as full:
        code, said = judged(full, "--json", "-")
    assert code == 2
    assert said.count("No space left") == 1
    assert "rank 2" in said


def with_closed(streams, *arguments):
    """Runs a command whose stdout or stderr the caller has closed, as `>&-` does."""
    line = [sys.executable, "-c", MAIN, *arguments]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {streams}', "sh", *line],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["judge", "odd"], 1), (["judge", "refuse"], 2), (["--help"], 0), (["--wrong"], 2)],
)
def test_closed_streams_change_no_exit_code_and_make_no_traceback(streams, arguments, code):
    run = with_closed(streams, *arguments)
    assert run.returncode == code
    assert "Traceback" not in run.stdout + run.stderr


def test_the_verdict_goes_to_stderr_where_stdout_is_closed(tmp_path):
    run = with_closed(">&-", "judge", "odd", "--json", str(tmp_path / "report.json"))
    assert "selftest: odd" in run.stderr
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "odd"


def test_a_full_disk_under_stdout_is_one_line():
    for arguments in (["doctor"], ["bench", "run", "--dry-run"]):
        with open("/dev/full", "w", encoding="ascii") as full:
            run = subprocess.run(
                [sys.executable, "-m", "oddrank", *arguments],
                stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False,
            )  # fmt: skip
        assert run.returncode == 2, arguments
        assert run.stderr == "oddrank: cannot write to stdout: No space left on device\n"


def test_json_to_stdout_is_alone_there():
    run = oddrank("judge", "odd", "--json", "-")
    assert json.loads(run.stdout)["verdict"] == "odd"
    assert "rank 2" in run.stderr


def test_json_goes_to_its_file_and_the_verdict_to_people(tmp_path):
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


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [("60", 60), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400), (300, 300)],
)
def test_a_time_is_in_seconds_or_has_a_unit(typed, seconds):
    assert Seconds(1, 86400).convert(typed, None, None) == seconds


@pytest.mark.parametrize("typed", ["nan", "", "s", "1w", "60 apples", "0.5", "25h", "inf"])
def test_what_is_no_time_in_range_is_refused(typed):
    with pytest.raises(click.BadParameter, match=r"not a time like|not in the range"):
        Seconds(1, 86400).convert(typed, None, None)

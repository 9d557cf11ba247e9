"""The command `oddrank bench compare`: output, files, refusals and exit codes."""

import json
from pathlib import Path

import click
import jsonschema
import pytest

from oddrank import cli
from oddrank.bench.command import command as bench
from oddrank.report import SCHEMA_FILE
from oddrank.selftest.command import command as selftest
from saved_runs import report, row, write

SIZES = [1 << 10, 1 << 20, 1 << 26]


@pytest.fixture
def run(tmp_path, capsys):
    """Runs the command in this process: (exit code, stdout, stderr)."""

    def start(a, b, *arguments):
        files = [write(tmp_path / f"{name}.json", made) for name, made in (("a", a), ("b", b))]
        with pytest.raises(SystemExit) as ended:
            cli.main(["bench", "compare", *files, *arguments])
        return ended.value.code, *capsys.readouterr()

    return start


@pytest.mark.parametrize(
    ("us", "size", "fail_on", "code"),
    [
        (100, None, None, 0),
        (130, None, None, 1),
        (70, None, None, 0),
        (105, None, None, 0),
        (105, None, "slower,unsure", 1),
        (70, None, "faster", 1),
        (130, None, "none", 0),
        (130, None, "unsure", 0),
        (100, 8, None, 0),
        (100, 8, "missing", 1),
    ],
)
def test_the_exit_code_is_1_for_what_is_asked_for(us, size, fail_on, code, run):
    a = report(row(), *([row(size)] if size else []))
    options = ["--fail-on", fail_on] if fail_on else []
    assert run(a, report(row(us=us, seed=1)), *options)[0] == code


@pytest.mark.parametrize(("fail_on", "code"), [(None, 1), ("wrong", 1), ("slower,unsure", 0)])
def test_wrong_values_fail_by_a_word_of_their_own_which_is_there_by_default(fail_on, code, run):
    options = ["--fail-on", fail_on] if fail_on else []
    ended, out, _ = run(report(row()), report(row(check="wrong")), *options)
    assert ended == code
    lines = out.splitlines()
    assert "wrong: all_reduce float32 sum 1 MiB in place (c10d:gloo): wrong values in B" in lines
    assert "bench compare: WRONG" in lines
    assert "oddrank selftest" in lines[-1]


SKIPPED = {"check": "skipped", "median_us": None, "p99_us": None, "samples_us": []}


@pytest.mark.parametrize(
    ("a", "b", "code"),
    [
        ({}, SKIPPED, 1),
        ({}, {"median_us": None, "samples_us": []}, 1),
        (SKIPPED, {}, 0),
        (SKIPPED, SKIPPED, 0),
        (SKIPPED, None, 0),
        ({"check": "wrong"}, {}, 0),
    ],
)
def test_missing_is_what_a_has_measured_and_b_has_not(a, b, code, run):
    both = row(8)
    before, now = report(both, row(**a)), report(both, *([] if b is None else [row(**b)]))
    assert run(before, now, "--fail-on", "missing")[0] == code


def test_the_command_shows_a_table_and_ends_with_the_verdict(run):
    code, out, err = run(report(row(), row(8)), report(row(us=200)))
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert "SLOWER" in out
    assert "only in A: all_reduce float32 sum 8 B in place (c10d:gloo)" in lines
    assert lines[-2] == "bench compare: SLOWER"


def test_what_is_not_decided_ends_with_what_to_do_next(run):
    _, out, _ = run(report(row()), report(row(us=105, seed=1)))
    lines = out.splitlines()
    assert lines[-4] == "bench compare: UNSURE"
    assert lines[-2].startswith("  next  measure both again with a longer --budget")
    assert lines[-1].startswith("  next  or measure both several times")
    assert "next" not in run(report(row()), report(row(seed=1)))[1]


def test_the_json_fits_the_schema_and_is_alone_on_stdout(run):
    code, out, _ = run(report(row(), row(8)), report(row(us=200)), "--json", "-")
    made = json.loads(out)
    jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text())).validate(made)
    assert (code, made["tool"], made["data"]["verdict"]) == (1, "bench compare", "SLOWER")
    (only,) = made["data"]["rows"]
    assert only["low"] > 1.9
    assert (only["bytes"], only["verdict"]) == (1 << 20, "SLOWER")
    assert [each["bytes"] for each in made["data"]["only_a"]] == [8]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--within", "x"],
        ["--within", "-5%"],
        ["--within", "0%"],
        ["--within", "nan"],
        ["--fail-on", "odd"],
        ["--fail-on", ""],
        ["--json", "absent/x.json"],
    ],
)
def test_bad_options_are_refused_in_one_line(arguments, run):
    code, out, err = run(report(row()), report(row()), *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("name", ["run", "pairs", "compare", "selftest"])
def test_fail_on_is_read_alike_by_every_command(name):
    command = selftest if name == "selftest" else bench.commands[name]
    option = next(one for one in command.params if one.name == "fail_on")
    known = ("odd", "unknown") if name != "compare" else ("slower", "wrong")

    def given(text):
        return option.process_value(click.Context(command), text)

    for text in (",".join(known), f" {known[0].upper()} , {known[1]},"):
        assert given(text) == set(known)
    assert given("NONE") == frozenset()
    for text in ("", ",", "red", f"none,{known[0]}", "x" * 1000):
        with pytest.raises(
            click.BadParameter, match=r"is neither none nor some of \w+,"
        ) as refused:
            given(text)
        assert len(refused.value.message) < 150


def test_a_file_that_is_none_is_refused_in_one_line(run, tmp_path):
    code, out, err = run("no report \x1b[2J", report(row()))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(Path(tmp_path, "a.json")) in err


def test_names_that_are_not_ours_move_no_cursor(run):
    hostile = row(collective="\x1b[2Jall\nreduce", backend="\u202egloo")
    _, out, _ = run(report(hostile), report(hostile))
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_the_ratio_shown_is_that_of_the_medians_shown(run, monkeypatch):
    """Saved samples are a part of all iterations and may have another median."""
    monkeypatch.setenv("COLUMNS", "120")  # a row in one line
    _, out, _ = run(report(row(median_us=93.0)), report(row(us=115, seed=1, median_us=101.0)))
    (shown,) = (line.split() for line in out.splitlines() if line.startswith("1 MiB"))
    a_us, b_us, ratio = map(float, shown[-5:-2])
    assert ratio == pytest.approx(b_us / a_us, abs=0.002)
    low, high = map(float, shown[-2].split("-"))
    assert low <= ratio <= high


SKIPPED = {"check": "skipped", "reason": "not enough free memory", "median_us": None,
           "samples_us": []}  # fmt: skip


def test_a_row_that_was_skipped_says_where_and_why(run):
    small, large = row(), row(size=1 << 30)
    name = "all_reduce float32 sum 1 GiB in place (c10d:gloo)"
    why = "not enough free memory"
    both = [report(small, large | SKIPPED), report(small, large), report(small)]
    a, b, without = both
    assert f"unsure: {name}: skipped in A: {why}" in run(a, b)[1]
    assert f"unsure: {name}: skipped in B: {why}" in run(b, a)[1]
    assert f"skipped in A: {name}: {why}; not in B" in run(a, without)[1]
    assert f"skipped in B: {name}: {why}; not in A" in run(without, a)[1]
    code, out, _ = run(a, a)
    assert (code, f"skipped in A and B: {name}: {why}" in out) == (0, True)
    assert "bench compare: SAME" in out
    code, _, said = run(report(large | SKIPPED), report(large | SKIPPED))
    assert code == 2
    assert "skipped every row" in said


def test_a_report_whose_tool_is_another_one_is_refused_by_its_name(run):
    _, _, said = run(report(row()) | {"tool": "bench run"}, report(row()))
    assert """its "tool" is 'bench run', not "bench";""" in said

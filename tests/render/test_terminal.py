"""On a real terminal: colours, unless NO_COLOR or the terminal can't; nobody else's escapes."""

import sys
from pathlib import Path

import pytest

from terminal import on_terminal
from texts import texts

TESTS = str(Path(__file__).parents[1])
SHOW = texts(__file__)["show"]


def shown(script=SHOW, **environ):
    """What the script wrote to its terminal."""
    return on_terminal([sys.executable, "-c", script], PYTHONPATH=TESTS, **environ)


def test_a_terminal_gets_colours_and_no_escapes_of_strangers():
    text = shown()
    assert "\x1b[1;31m" in text
    assert "\x1b[2J" not in text
    assert "[red]a\\x1b[2Jb[/red] :smile:" in text
    assert "[bold]rank" in text


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colours_gets_plain_text(environ):
    assert "\x1b" not in shown(**environ)


def test_a_c_locale_is_no_reason_to_fail():
    plain_c = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    for environ in (plain_c, {**plain_c, "PYTHONIOENCODING": "ascii:strict"}):
        assert "\\u5927" in shown(**environ)


def test_a_terminal_that_mpirun_puts_in_front_of_a_file_gets_no_colours():
    script = """
from oddrank import cli
cli._COMMANDS["judge"] = ("cli.judging", "Judge a job of four ranks.")
cli.main(["judge", "odd", "--fail-on", "none"])
"""
    ours = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    ours |= {"OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    assert "\x1b[" in shown(script)
    assert "\x1b[" not in shown(script, **ours)

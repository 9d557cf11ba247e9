"""The public names of oddrank, and their types for a type checker."""

import inspect
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import oddrank
from patience import PATIENCE
from processes import captured
from texts import texts

# A first run of mypy takes a minute, and more beside compilers.
pytestmark = pytest.mark.timeout(600)
SOURCES = Path(oddrank.__file__).parents[1]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Returns a folder for what mypy learns of oddrank, and its settings: it reads no torch."""
    folder = tmp_path_factory.mktemp("mypy")
    skip = "[mypy-torch.*,numpy.*,matplotlib.*]\nfollow_imports = skip\n"
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = True\n{skip}")
    return folder


def checked(folder: Path, cache: Path, *lines: str) -> str:
    """Returns the output of mypy for a script of these lines."""
    script = folder / "script.py"
    script.write_text("\n".join(["import oddrank", "import oddrank.trace", *lines, ""]))
    done = captured(
        [sys.executable, "-m", "mypy", "--config-file", cache / "mypy.ini", "--cache-dir", cache,
         script], cwd=folder, limit=PATIENCE.seconds(300), MYPYPATH=str(SOURCES),
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.needs("mypy")
def test_a_type_checker_knows_every_public_name(tmp_path, cache):
    shown = checked(tmp_path, cache, *(f"reveal_type(oddrank.{name})" for name in oddrank.__all__))
    types = [line for line in shown.splitlines() if "Revealed type" in line]
    assert len(types) == len(oddrank.__all__), shown
    assert not [line for line in types if 'is "Any"' in line]


WRONG = texts(__file__)["wrong"][1:]


@pytest.mark.needs("mypy")
def test_a_type_checker_sees_misspelled_names_and_wrong_arguments(tmp_path, cache):
    shown = checked(tmp_path, cache, *WRONG.splitlines())
    # Errors inside of packages are not the users: torch changes what it exports.
    lines = [line.split(":") for line in shown.splitlines() if ": error:" in line]
    wrong = {int(number) for file, number, *_ in lines if file == "script.py"}
    assert wrong == {3, 4, 5, 7, 8, 18, 22, 25}, shown


def test_no_public_function_returns_just_anything():
    functions = [name for name in oddrank.__all__ if inspect.isfunction(getattr(oddrank, name))]
    assert {"arm", "switch"} <= set(functions)
    for name in functions:
        assert get_type_hints(getattr(oddrank, name))["return"] is not Any, name


def test_every_public_name_is_there_and_in_dir():
    for name in oddrank.__all__:
        assert getattr(oddrank, name) is not None
        assert name in dir(oddrank)
    with pytest.raises(AttributeError, match="no attribute 'armed'"):
        oddrank.armed  # noqa: B018


def test_a_report_of_our_own_can_be_made_from_the_public_names():
    who = oddrank.finding.Who("rank", (2,))
    sure = oddrank.finding.Confidence("high", "measured twice")
    found = oddrank.Finding(condition="slow", who=who, cause="slow", what="it is", confidence=sure)
    made = oddrank.Report.of("mine", {"size": 4}, {}, [found], complete=True)
    assert (made.verdict, made.exit_code()) == ("odd", 1)

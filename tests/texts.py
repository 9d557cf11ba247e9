"""Long inputs of tests: the parts of data/<module>.txt beside a test, each under `==== name`."""

import re
from functools import cache
from pathlib import Path

import pytest


@cache
def texts(module: str) -> dict[str, str]:
    """Returns name -> text, with an empty first line, for a test module's __file__."""
    file = Path(module).parent / "data" / f"{Path(module).stem.removeprefix('test_')}.txt"
    _, *parts = re.split(r"^==== (.*)$", file.read_text(encoding="utf-8"), flags=re.M)
    assert len(set(parts[::2])) == len(parts) // 2, f"{file}: two parts have one name"
    return {name: f"{text.rstrip()}\n" for name, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.fixture
def source(request: pytest.FixtureRequest) -> str:
    """Returns the program that a test runs: the part that is named as the test is."""
    name = request.node.originalname.removeprefix("test_").replace("_", " ")
    return texts(str(request.path))[name]


def cases(module: str) -> dict[str, tuple[str, str, str]]:
    """Returns the parts with a line `---- words`: name -> text above it, words, text below it."""
    parted = {name: re.split(r"^---- ?(.*)\n", t, flags=re.M) for name, t in texts(module).items()}
    return {name: (part[0], part[1], part[2]) for name, part in parted.items() if len(part) == 3}


def rows(module: str, name: str) -> list[list[str]]:
    r"""Returns the lines of a part, cut at `|`, without comments; `\n` in them begins a line."""
    lines = (line.replace(r"\n", "\n") for line in texts(module)[name].splitlines())
    return [
        [word.strip(" ") for word in line.split("|")]
        for line in lines
        if line and not line.startswith("# ")
    ]

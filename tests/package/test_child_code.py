"""A user's modules in the current folder hide none of Python's from children of oddrank's."""

import sys

import pytest

from oddrank.control import address
from oddrank.doctor import probes
from patience import PATIENCE
from processes import captured

HIDING = ("tokenize", "token", "linecache", "json", "subprocess", "socket", "oddrank")


@pytest.fixture
def own_modules(tmp_path, monkeypatch):
    for name in HIDING:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the own module')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(command):
    done = captured(command)
    return done.returncode, done.stderr


def test_the_look_up_of_addresses_and_probes_import_nothing_of_the_current_folder(own_modules):
    plain = [sys.executable, "-c", "import tokenize"]
    assert said(plain) == (1, "the own module\n")
    there = str(own_modules / "tokenize.py")  # a rendezvous file that has come
    for command in (
        address.fetcher("key", 1.0), address.fetcher("key", 1.0, there),
        *(address.python_command(f"import {name}") for name in HIDING),
    ):  # fmt: skip
        assert said(command) == (0, ""), command
    assert "the own module" not in str(probes.ask(["gpu"], PATIENCE.limit))

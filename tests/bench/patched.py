"""Starts jobs whose ranks run the command after a few lines of a test's own."""

from dataclasses import replace

from launchers import Launcher, env

_BEGIN = "import os, sys\nfrom oddrank import cli\n"
_END = "\nsys.argv[0] = 'oddrank'\ncli.main()\n"


def patched(lines: str) -> Launcher:
    return lambda order: env(replace(order, tool=["-c", program(lines), *order.tool[2:]]))


def program(lines: str) -> str:
    """Returns the text of a program: these lines, then the command."""
    return f"{_BEGIN}{lines}{_END}"

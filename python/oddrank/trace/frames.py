"""A place in the code, and how its file is said: all that `trace tail` needs of a stack."""

import os
from dataclasses import dataclass

# Before it a path says only where Python is installed.
_INSTALLED = ("/site-packages/", "/dist-packages/")


@dataclass(frozen=True)
class Frame:
    """A place in the code; line None: recorded by calls only."""

    function: str
    file: str
    line: int | None


def short(file: str) -> str:
    """The path from where it begins to tell: the package, or the working directory."""
    for folder in _INSTALLED:
        if folder in file:
            return file.rpartition(folder)[2]
    standard = os.path.dirname(os.__file__) + "/"
    here = os.getcwd() + "/"
    for folder in (standard, here):
        if file.startswith(folder):
            return file[len(folder) :]
    return file

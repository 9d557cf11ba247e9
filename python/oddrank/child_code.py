"""How child processes run Python code of oddrank's."""

import sys


def command(code: str) -> tuple[str, ...]:
    """Returns a command that runs the code.

    A user's module in the current folder must not hide one of Python's: the folder of `-c` is left
    out. Python's own -P is newer than 3.10.
    """
    return (sys.executable, "-c", f"import sys; sys.path[:] = filter(None, sys.path)\n{code}")

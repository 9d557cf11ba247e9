"""Find the odd rank: which rank of a distributed job is stuck, slow, broken or different, and why.

Importing oddrank loads neither torch nor numpy nor rich; the native core is loaded on first use.
"""

from importlib import import_module
from typing import Any

from oddrank._version import __version__
from oddrank.errors import LaunchError, MissingPartError, OddrankError

# Public name -> the module that holds it, imported on first use.
_LAZY = {
    "arm": "oddrank.trace.arm",
    "NicerTrace": "oddrank.trace.nicer",
    "Tee": "oddrank.trace.stdout",
    "step": "oddrank.trace.marks",
    "mark": "oddrank.trace.marks",
    "section": "oddrank.trace.marks",
    "printflock": "oddrank.printing.printflock",
    "install": "oddrank.printing.install",
}

__all__ = [
    "LaunchError",
    "MissingPartError",
    "NicerTrace",
    "OddrankError",
    "Tee",
    "__version__",
    "arm",
    "install",
    "mark",
    "printflock",
    "section",
    "step",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'oddrank' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

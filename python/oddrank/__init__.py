"""Find the odd rank: which rank of a distributed job is stuck, slow, broken or different, and why.

Importing oddrank loads neither torch nor numpy nor rich; the native core is loaded on first use.

PYTEST_DONT_REWRITE
"""
# For pytest, which would warn that it can't rewrite modules imported before it.

from importlib import import_module
from typing import TYPE_CHECKING

from oddrank import forks as forks  # it notes forks from here on
from oddrank._version import __version__
from oddrank.errors import LaunchError, MissingPartError, OddrankError

if TYPE_CHECKING:  # the same names as in _LAZY and _PACKAGES
    from oddrank import plan as plan
    from oddrank import replicas as replicas
    from oddrank.debugger.breakpoint import breakpoint as breakpoint
    from oddrank.finding import Confidence, Evidence, Finding, Who
    from oddrank.printing import install_printing, printflock
    from oddrank.report import Report
    from oddrank.run.arm import arm
    from oddrank.switches.switch import switch
    from oddrank.trace.arm import mark, section, step
    from oddrank.trace.nicer import NicerTrace

# Public name -> its module, imported on first use.
_LAZY = {
    "arm": "oddrank.run.arm",
    "NicerTrace": "oddrank.trace.nicer",
    **dict.fromkeys(("step", "mark", "section"), "oddrank.trace.arm"),
    **dict.fromkeys(("printflock", "install_printing"), "oddrank.printing"),
    "breakpoint": "oddrank.debugger.breakpoint",
    "switch": "oddrank.switches.switch",
    **dict.fromkeys(("Confidence", "Evidence", "Finding", "Who"), "oddrank.finding"),
    "Report": "oddrank.report",
}

_PACKAGES = ("plan", "replicas")  # their functions are public

__all__ = [  # without breakpoint: `import *` would replace Python's
    "Confidence", "Evidence", "Finding", "LaunchError", "MissingPartError", "NicerTrace",
    "OddrankError", "Report", "Who", "__version__", "arm", "install_printing", "mark", "printflock",
    "section", "step", "switch",
]  # fmt: skip

if not TYPE_CHECKING:  # else every name, misspelled ones too, would be Any to a type checker

    def __getattr__(name):
        if name in _PACKAGES:
            return import_module(f"oddrank.{name}")
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError(f"module 'oddrank' has no attribute {name!r}")
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY, *_PACKAGES})

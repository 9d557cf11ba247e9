"""Rules that say how closely to record each package: the defaults, and the user's on top."""

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from oddrank.errors import OddrankError

LEVELS = ("off", "where", "calls", "lines")  # nothing; the current place; calls too; lines too

Packages: TypeAlias = Mapping[str, str] | Sequence[str] | str | None

# Packages in which ranks wait: stacks show them.
_WAITS = (
    "torch.distributed", "torch.nn.parallel", "torch.utils.data", "threading", "queue",
    "multiprocessing", "socket", "selectors", "subprocess", "concurrent.futures", "asyncio",
    "torch.utils.file_baton", "filelock", "portalocker", "fasteners",
)  # fmt: skip
_FRAMEWORKS = (
    "transformers", "accelerate", "deepspeed", "lightning", "pytorch_lightning", "megatron",
)  # fmt: skip

DEFAULTS = {
    "uninstalled": "lines",
    **dict.fromkeys(_WAITS, "where"),
    **dict.fromkeys(_FRAMEWORKS, "calls"),
    "*": "off",
}
"""The rules without an argument: user code (all code that is not installed) by lines, and so on."""


def rules(packages: Packages = None) -> list[tuple[str, str]]:
    """Returns (package, level) for the native filter, which uses the longest package that fits.

    packages: name -> level; or names, which are then recorded by lines. Names are packages and
    modules, or "stdlib", "site-packages", "uninstalled" (editable installs too) and "*"; or
    folders, with a slash at both ends, which take precedence. A module run with -m is "__main__",
    or else its name.
    They extend DEFAULTS: a package replaces the defaults of its subpackages, "*" replaces all
    defaults. OddrankError for an unknown level.
    """
    if packages is None:
        wanted: dict[str, str] = {}
    elif isinstance(packages, str):
        wanted = {}
        for item in filter(None, (item.strip() for item in packages.split(","))):
            package, _, level = item.partition("=")
            if not package.strip():
                raise OddrankError(f"packages: {item!r} has no package: write name=level")
            wanted[package.strip()] = level.strip() or "lines"
    elif isinstance(packages, Mapping):
        wanted = dict(packages)
    elif isinstance(packages, Iterable):
        wanted = dict.fromkeys(packages, "lines")
    else:
        raise OddrankError(f"packages={packages!r}: give names, or names with levels")
    for package, level in wanted.items():
        if level not in LEVELS:
            raise OddrankError(
                f"packages: {package}={level!r} is none of {', '.join(LEVELS)}: correct it"
            )
    own = dict.fromkeys(("oddrank", f"{sysconfig.get_path('scripts')}/oddrank"), "off")
    left = {
        package: level
        for package, level in DEFAULTS.items()
        if "*" not in wanted and not any(package.startswith(f"{name}.") for name in wanted)
    }
    return [*{**own, **left, **wanted}.items()]


def roots() -> tuple[list[str], list[str]]:
    """Returns the folders of the standard library and of installed packages, with a final slash."""
    stdlib = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    stdlib.add(os.path.dirname(os.__file__))
    installed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    installed.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    if site.ENABLE_USER_SITE:
        installed.add(site.getusersitepackages())
    # A venv that sees system packages: their folders are only in sys.path.
    installed.update(
        entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")
    )
    return _folders(stdlib), _folders(installed)


def _folders(paths: set[str]) -> list[str]:
    """Returns each folder with and without links resolved: code objects may name either."""
    both = {path for each in paths if each for path in (each, os.path.realpath(each))}
    return sorted(path.rstrip("/") + "/" for path in both)

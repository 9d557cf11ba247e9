"""The only importer of the compiled parts: says whether each is there, and if not what to type."""

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from oddrank.errors import MissingPartError


@dataclass(frozen=True)
class Part:
    """One compiled module: `module` when it is loaded, else `reason` and what to do about it."""

    name: str
    module: ModuleType | None
    reason: str = ""
    advice: str = ""


@lru_cache(maxsize=1)
def build_report() -> dict[str, dict[str, str]]:
    """What the build said of each module: `reason` is empty where it was built."""
    try:
        report: dict[str, dict[str, str]] = import_module("oddrank._build").PARTS
    except ImportError:
        return {}
    return report


def _load(name: str) -> Part:
    try:
        return Part(name, import_module(f"oddrank.{name}"))
    except ImportError as error:
        built = build_report().get(name, {})
        if built.get("reason"):
            return Part(name, None, built["reason"], built["advice"])
        return Part(name, None, str(error), "pip install --no-cache-dir --force-reinstall oddrank")


@lru_cache(maxsize=1)
def core_part() -> Part:
    """`_core`: always built; its absence means a broken installation."""
    return _load("_core")


def core() -> Any:
    """The module `_core`, or MissingPartError."""
    return _require(core_part())


def _require(part: Part) -> Any:
    if part.module is None:
        raise MissingPartError(
            f"oddrank.{part.name} is missing: {part.reason}. {part.advice}".rstrip()
        )
    return part.module

"""Finds the tests that start jobs: ranks under a launcher, or hosts in network namespaces.

Follows all names that a test, its fixtures and its parameters use through the code in tests/. The
test starts jobs if that leads to one of STARTERS, or to the text "torch.distributed.run".
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

import job
import netns
import slurm
from control.ranks import Ranks

STARTERS = (job.job, Ranks, netns.two_hosts, netns.network, slurm.two_nodes)
_TORCHRUN = "torch.distributed.run"
_TESTS = str(Path(__file__).parent)


def starts_a_job(item: pytest.Item) -> bool:
    info = getattr(item, "_fixtureinfo", None)
    fixtures = info.name2fixturedefs.values() if info else ()
    functions = [
        getattr(item, "function", None),
        *(one.func for given in fixtures for one in given),
    ]
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(map(_reaches_a_starter, functions)) or any(
        _is_starter(part) for one in parameters for part in _used_by(one)
    )


@cache
def _reaches_a_starter(function: Any) -> bool:
    return any(map(_is_starter, _used_by(function)))


def _is_starter(thing: Any) -> bool:
    if isinstance(thing, str):
        return thing == _TORCHRUN
    return any(thing is one for one in STARTERS)


def _used_by(root: Any) -> Iterator[Any]:
    """Yields `root` and all functions, classes and texts that it uses, directly or not."""
    left, seen = [root], {}
    while left:
        thing = left.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # kept alive: another object may not get its id
        yield thing
        match thing:
            case partial():
                left += [thing.func, *thing.args]
            case list() | tuple() | set() | frozenset():
                left += thing
            case dict():
                left += thing.values()
            case FunctionType() if thing.__code__.co_filename.startswith(_TESTS):
                left += _names_in(thing)
            case FunctionType() if hasattr(thing, "__wrapped__"):
                left.append(thing.__wrapped__)
            case staticmethod() | classmethod():
                left.append(thing.__func__)
            case property():
                left.append(thing.fget)
            case type() if _is_ours(thing):
                left += vars(thing).values()
            case _ if _is_ours(type(thing)):
                left += [type(thing), *getattr(thing, "__dict__", {}).values()]


def _is_ours(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and file.startswith(_TESTS)


def _names_in(function: FunctionType) -> Iterator[Any]:
    """Yields the objects that a function's code, and functions inside it, refer to by name."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not filled yet
            yield cell.cell_contents
    codes, known = [function.__code__], function.__globals__
    while codes:
        code = codes.pop()
        found = [known[name] for name in code.co_names if name in known]
        yield from found
        for module in found:
            if isinstance(module, ModuleType):
                yield from (vars(module)[name] for name in code.co_names if name in vars(module))
        yield from (one for one in code.co_consts if isinstance(one, str | tuple))
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]

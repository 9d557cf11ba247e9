"""Calls a function once a module has been imported, without importing it: that may take seconds."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Calls `act` with the module `name`: now if it is loaded, else right after its first import.

    Suppresses exceptions of `act`.
    """
    module = sys.modules.get(name)
    if module is not None:
        _quietly(act, module)
    else:
        sys.meta_path.insert(0, _Watch(name, act))


class _Watch(MetaPathFinder):
    """Waits for one import."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name, self._act, self._asked = name, act, False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self._asked:
            return None
        # Stays in sys.meta_path: importlib is walking the list.
        self._asked = True
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._act)
        return spec


class _Loader(Loader):
    """Stands in for the module's own loader, and puts it back when it loads the module."""

    def __init__(self, loader: Any, act: Callable[[ModuleType], None]) -> None:
        self._loader, self._act = loader, act

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _quietly(self._act, module)


def _quietly(act: Callable[[ModuleType], None], module: ModuleType) -> None:
    with suppress(Exception):  # a recorder must not break an import
        act(module)

"""`install_printing`: print() and logging lines go through printflock, each with a prefix.

The prefix is a template such as "[{host}:{rank}] ", filled in once per process.
"""

import builtins
import logging
import os
import socket
import string
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.printing.printflock import printflock

# What a prefix may name.
_FIELDS = ("host", "rank", "local_rank", "world", "pid")
_plain_print = builtins.print
_plain_emit = logging.StreamHandler.emit


def _emit(self: "logging.StreamHandler[Any]", record: logging.LogRecord) -> None:
    """Replaces StreamHandler.emit: one whole write instead of stream.write()."""
    if self.stream is None:
        return _plain_emit(self, record)
    try:
        printflock(self.format(record), end=self.terminator, file=self.stream)
        self.flush()
    except RecursionError:
        raise
    except Exception:
        self.handleError(record)


class Installed:
    """The changes of install_printing(). `undo()`, or leaving its `with` block, takes them back."""

    def __init__(self, print: bool, logging: bool, prefix: str | None) -> None:
        # Sets the prefix first: a bad template changes nothing.
        self._prefix = None if prefix is None else set_prefix(prefix)
        self._print = print and _install_print()
        self._logging = logging and _install_logging()

    def undo(self) -> None:
        """Takes this call's changes back, once; what was installed before stays."""
        if self._print and builtins.print is printflock:
            builtins.print = _plain_print
        if self._logging and logging.StreamHandler.emit is _emit:
            logging.StreamHandler.emit = _plain_emit  # type: ignore[method-assign]
        if self._prefix is not None:
            set_prefix(self._prefix)
        self._print, self._logging, self._prefix = False, False, None

    def __enter__(self) -> "Installed":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.undo()


def _install_print() -> bool:
    if builtins.print is printflock:
        return False
    builtins.print = printflock
    return True


def _install_logging() -> bool:
    if logging.StreamHandler.emit is _emit:
        return False
    # Patches the class: this covers present and future handlers, and FileHandler.
    logging.StreamHandler.emit = _emit  # type: ignore[method-assign,assignment]
    return True


def install_printing(
    print: bool = True, logging: bool = True, prefix: str | None = None
) -> Installed:
    """Keeps every print() and logging line of this process whole, with `prefix` before each line.

    `prefix` is a template of host, rank, local_rank, world and pid, e.g. "[{host}:{rank}] "; None
    keeps the present one, "" removes it. Safe to call again. Not covered: logging handlers with
    their own emit(), sys.stdout.write() and the output of C libraries.
    """
    return Installed(print, logging, prefix)


@dataclass(frozen=True)
class Prefix:
    """A checked template."""

    template: str

    def __post_init__(self) -> None:
        try:
            names = [
                name
                for _, name, _, _ in string.Formatter().parse(self.template)
                if name is not None
            ]
        except ValueError as error:
            raise OddrankError(
                f"prefix {self.template!r}: {error}; write {{{{ for a brace"
            ) from None
        for name in names:
            if name not in _FIELDS:
                raise OddrankError(
                    f"prefix {self.template!r}: no field {name!r}; known: {', '.join(_FIELDS)}"
                )

    def text(self) -> str:
        """Returns the template with this process's values."""
        if not self.template:
            return ""
        try:
            return self.template.format(**_values())
        except ValueError as error:
            raise OddrankError(f"prefix {self.template!r}: {error}") from None


def _values() -> dict[str, int | str]:
    from oddrank import launch

    me = launch.current()
    return {
        "host": me.host or socket.gethostname(),
        "rank": me.rank,
        "local_rank": me.local_rank,
        "world": me.world,
        "pid": os.getpid(),
    }


_current = Prefix("")


def set_prefix(template: str) -> str:
    """Puts `template` before each line of printflock from now on. Returns the former one.

    Raises OddrankError for an unknown field, LaunchError for a contradicting environment.
    """
    global _current
    before = _current.template
    fresh = Prefix(template)
    _native.core().printing_prefix(fresh.text())
    _current = fresh
    return before


def _after_fork() -> None:
    if _current.template:
        _native.core().printing_prefix(_current.text())


os.register_at_fork(after_in_child=_after_fork)

"""`install_printing`: print() and logging lines of this process go through printflock."""

import builtins
import logging
from types import TracebackType
from typing import Any

from oddrank.printing.prefix import set_prefix
from oddrank.printing.printflock import printflock

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

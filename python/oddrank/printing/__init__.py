"""Keeps lines whole: `printflock`, and `install_printing` for every print and logging line.

Each output (device and inode) has a lock, in one file that all processes of a user share on a host
or in a container: ranks of one job, of two jobs in one terminal, and the processes they start.

- Messages through printflock stay whole. Plain print(), sys.stdout.write(), C code and other users'
  processes take no lock. Different hosts share no lock (a file on NFS).
- printflock writes a message to sys.stdout, sys.stderr or another text file over a plain file at
  once. Other files get one write() call, and flush() only on request.
- If a holder is killed, the next one writes at once; the cut line stands alone. If a holder is
  stopped, the others go on after ODDRANK_PRINT_TIMEOUT (1 s) with one warning and keep a lock among
  themselves; when the holder goes on, it writes its message again as a whole. If a holder runs but
  does nothing for ten timeouts, the others go on, too: only then can lines mix.
- While a pipe is full or a terminal is held, all wait, as print() does.
- printflock cannot see a newline= given to sys.stdout.reconfigure().

Importing this module opens the lock file, once.
"""

import builtins
import logging
import os
import string
import sys
from typing import TYPE_CHECKING, Any

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.job import base_folders

DEFAULT_TIMEOUT_S = 1.0
_FIELDS = ("host", "rank", "local_rank", "world", "pid")  # fields of a prefix


def timeout_s(text: str | None) -> float:
    """Returns the seconds to wait for a stuck holder, from ODDRANK_PRINT_TIMEOUT's text."""
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if 0 <= seconds <= 3600:
        return seconds
    _warn(f"ODDRANK_PRINT_TIMEOUT={text!r} is not between 0 and 3600: using {DEFAULT_TIMEOUT_S} s")
    return DEFAULT_TIMEOUT_S


def _warn(text: str) -> None:
    # Warns and never raises: print() works despite a bad configuration.
    if sys.stderr is not None:
        sys.stderr.write(f"oddrank: printflock: {text}\n")


def _open() -> str:
    """Opens the lock file that all processes of this user on this host share; returns its path."""
    path, refused = _native.core().printing_open(
        [str(folder) for folder in base_folders()],
        timeout_s(os.environ.get("ODDRANK_PRINT_TIMEOUT")),
    )
    if not path:
        _warn(f"no folder for a lock file, lines of other processes may mix in: {refused}")
    elif refused and os.environ.get("ODDRANK_DIR"):
        _warn(f"ODDRANK_DIR is not used: {refused}")
    return str(path)


lock_path = _open()
if TYPE_CHECKING:
    printflock = print
else:
    printflock = _native.core().printflock

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
    """Changes of install_printing(): `remove()`, or the end of its `with`, takes them back."""

    def __init__(self, print: bool, logging: bool, prefix: str | None) -> None:
        self.print, self.logging, self.prefix = print, logging, prefix
        _installed.append(self)
        try:
            _apply()
        except OddrankError:  # a bad template changes nothing
            _installed.remove(self)
            raise

    def remove(self) -> None:
        """Takes this call's changes back, once; other calls' changes stay."""
        if self in _installed:
            _installed.remove(self)
            _apply()

    def __enter__(self) -> "Installed":
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


_installed: list[Installed] = []  # installed and not removed, the newest last
_replaced = {"print": False, "logging": False}


def _apply() -> None:
    """Replaces print() and logging's writing while a call of install_printing() asks for it.
    Before that it sets the prefix that the newest one asks for."""
    _prefix_lines()
    wanted = any(one.print for one in _installed)
    if wanted and builtins.print is not printflock:
        builtins.print, _replaced["print"] = printflock, True
    elif not wanted and _replaced["print"] and builtins.print is printflock:
        builtins.print, _replaced["print"] = _plain_print, False
    # Patches the class: this covers present and future handlers, and FileHandler.
    handler = logging.StreamHandler
    wanted = any(one.logging for one in _installed)
    if wanted and handler.emit is not _emit:
        handler.emit, _replaced["logging"] = _emit, True  # type: ignore[method-assign,assignment]
    elif not wanted and _replaced["logging"] and handler.emit is _emit:
        handler.emit, _replaced["logging"] = _plain_emit, False  # type: ignore[method-assign]


def install_printing(
    print: bool = True, logging: bool = True, prefix: str | None = None
) -> Installed:
    """Keeps every print() and logging line of this process whole, with `prefix` before each line.

    `prefix` is a template of host, rank, local_rank, world and pid, e.g. "[{host}:{rank}] "; None
    keeps the present one, "" removes it. Safe to call again. Raises OddrankError for an unknown
    field, LaunchError for a contradicting environment. Not covered: logging handlers with
    their own emit(), sys.stdout.write() and the output of C libraries.
    """
    return Installed(print, logging, prefix)


def _filled(template: str) -> str:
    """Returns a prefix with this process's values."""
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise OddrankError(f"prefix {template!r}: {error}; write {{{{ for a brace") from None
    if unknown := names - set(_FIELDS):
        known = ", ".join(_FIELDS)
        raise OddrankError(f"prefix {template!r}: no field {min(unknown)!r}; known: {known}")
    if not template:
        return ""
    from oddrank import launch

    me = launch.current()
    try:
        return template.format(
            host=me.host, rank=me.rank, local_rank=me.local_rank, world=me.world, pid=os.getpid()
        )
    except ValueError as error:
        raise OddrankError(f"prefix {template!r}: {error}") from None


def _prefix_lines() -> None:
    templates = (one.prefix for one in reversed(_installed) if one.prefix is not None)
    _native.core().printing_prefix(_filled(next(templates, "")))


os.register_at_fork(after_in_child=_prefix_lines)

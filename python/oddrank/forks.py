"""Tells the original process from a fork of it, which has inherited a process group."""

import os
import sys
from typing import Any

_first_pid = os.getpid()
inherited: Any = None
"""The default process group that a fork must not use, as it is its parent's."""


def is_fork() -> bool:
    """Returns whether this process was forked after `import oddrank`."""
    return os.getpid() != _first_pid


def begin_anew() -> None:
    """Makes this process one that began by itself: a rank that a warm parent has forked."""
    global _first_pid
    _first_pid = os.getpid()


def _note() -> None:
    global inherited
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        inherited = dist.group.WORLD


os.register_at_fork(after_in_child=_note)

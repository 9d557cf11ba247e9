"""The prefix of each line: a template such as "[{host}:{rank}] ", filled in once per process."""

import os
import socket
import string
from dataclasses import dataclass

from oddrank import _native
from oddrank.errors import OddrankError

FIELDS = ("host", "rank", "local_rank", "world", "pid")


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
            if name not in FIELDS:
                raise OddrankError(
                    f"prefix {self.template!r}: no field {name!r}; known: {', '.join(FIELDS)}"
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

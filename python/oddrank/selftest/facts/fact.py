"""What a fact of a rank is: how it is read, and what it means where ranks differ in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from oddrank.launch import Launch

# Not healthy, nor a fault: told, and never compared.
NOT_READABLE = "not readable"
_MOST_TEXT = 200
_MOST_ENTRIES = 128


@dataclass(frozen=True)
class Here:
    """What a fact is read from, besides the kernel's files.

    place: bench.place.facts of this rank. master: an address of rank 0, "" where all are on a host.
    """

    launch: Launch
    torch: Any
    master: str
    place: Mapping[str, Any]


@dataclass(frozen=True)
class Fact:
    """One row.

    read: gives a text, a number, None (there is none) or a flat mapping of these, whose entries are
    compared one by one. differs: what it means where ranks differ: it breaks jobs; is odd; or is
    fine, and only shown. breaking, free: of a mapping, the entries that break jobs, and those that
    are only shown.
    near: numbers that deviate from the median by no more than this share are alike.
    """

    name: str
    read: Callable[[Here], Any]
    differs: Literal["breaks", "odd", "fine"]
    near: float = 0.0
    breaking: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()

    def value(self, here: Here) -> Any:
        """What cannot be read must not cost the rank its other facts."""
        try:
            return _cut(self.read(here))
        except FileNotFoundError:
            return None
        except Exception:
            return NOT_READABLE

    def breaks(self, entry: str = "") -> bool:
        return self.differs == "breaks" or entry in self.breaking


def _cut(value: Any) -> Any:
    """Texts of a sane length: they may be anybody's."""
    if isinstance(value, str):
        return value[:_MOST_TEXT]
    if isinstance(value, Mapping):
        return {str(key): _cut(value[key]) for key in sorted(value)[:_MOST_ENTRIES]}
    return value

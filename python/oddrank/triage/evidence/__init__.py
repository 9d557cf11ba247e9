"""Finds the kind of each file by its content, and reads it: a row a kind."""

import json
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from oddrank import _native
from oddrank.inputs import Item, Notes, unix_time
from oddrank.triage.facts import MOST_RANKS, Fact

_RANK = re.compile(r"(?<![a-z])rank(?:[^\w/]|_){0,3}(\d{1,7})(?!\d)", re.IGNORECASE)
# Ranks within a node or among nodes.
_OTHER_RANK = re.compile(r"(?:local|node|group)[_.=-]?rank[_.=-]{0,2}\d+", re.IGNORECASE)
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """A kind of evidence. binary: its files are of this kind alone; else text, of several kinds.

    sniff: whether a file is, or contains, this kind (called with every file, so it must be cheap;
    it may read more than the head through C++). read: makes facts of all files of the kind at
    once. It never raises for bad content: it adds a line to the notes and goes on.
    """

    name: str
    binary: bool
    sniff: Callable[[Item], bool]
    read: Callable[[Sequence[Item], Notes], Iterable[Fact]]


def of_json(
    item: Item, notes: Notes, make: Callable[[Any], Iterable[T]], most: int = 64 << 20
) -> Iterator[T]:
    """Yields what `make` makes of a file of JSON. One of over `most` bytes or broken is a note."""
    if item.size > most:
        notes.add(item, f"JSON of over {most >> 20} MiB is not read")
        return
    try:
        yield from list(make(json.loads(item.path.read_bytes())))
    except OSError as error:
        notes.add(item, f"not readable: {error.strerror}")
    except json.JSONDecodeError as error:
        notes.add(item, f"JSON that ends or is broken in line {error.lineno}")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        notes.add(item, f"JSON that is broken in line {line}: it is no {error.encoding}")
    except RecursionError:
        notes.add(item, "JSON of too many lists in each other is not read")
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        notes.add(item, "JSON without what is read of such files")


def time_in(text: str, newest: float = 0.0) -> tuple[float | None, bool]:
    """Returns the first time that a text names, and whether its zone or year is a guess.

    The guess is UTC, and the last such day before `newest`, in Unix seconds.
    """
    found = _native.core().find_time(text, int(newest * 1e9))
    if found is None or found[1] == "boot":
        return None, False
    return unix_time(found[0] / 10**9), found[1] == "wall"


def signal_number(name: str) -> int | None:
    """Returns the number of a signal such as SIGTERM; None if there is none of that name."""
    found = signal.Signals.__members__.get(name)
    return None if found is None else int(found)


def rank_in_name(name: str) -> int | None:
    """Returns the last global rank in a name such as logs/rank_3.log; None if it has none."""
    found = _RANK.findall(without_other_ranks(name))
    return int(found[-1]) if found and int(found[-1]) < MOST_RANKS else None


def without_other_ranks(name: str) -> str:
    """Returns a name without local ranks and numbers of nodes: local_rank_3, node_rank_0."""
    return _OTHER_RANK.sub("", name)

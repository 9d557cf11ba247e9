"""Is this allocation healthy, and which rank, GPU, link or node is not: a table of stages."""

from dataclasses import dataclass
from typing import Literal

Depth = Literal["quick", "normal", "full"]


@dataclass(frozen=True)
class Options:
    """The options of a run: how thorough it is, and its stages by name (`only` empty: all).

    paths: folders whose file systems are tried, beside those that nearly every job uses.
    """

    depth: Depth = "normal"
    only: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

"""In which facts the ranks differ, and from what most have: pure.

A node has one vote, which its ranks share: eight ranks with one image do not outvote four with
another. Within a single node each rank has one. Most means two thirds: of two nodes, or two ranks,
nobody can say which of them is odd.
"""

import json
import statistics
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oddrank.selftest.facts.fact import NOT_READABLE, Fact

_MOST = 2 / 3
# Three of four, or seven of eight: beyond doubt.
_NEARLY_ALL = 3 / 4
_ROUNDING = 1e-9

# A value, and the ranks that have it.
Group = tuple[Any, tuple[int, ...]]


@dataclass(frozen=True)
class Difference:
    """A fact in which ranks differ; groups: the one with most votes first.

    share: of the votes that this first one has.
    """

    name: str
    breaks: bool
    groups: tuple[Group, ...]
    share: float

    @property
    def common(self) -> Group | None:
        """What most have."""
        return self.groups[0] if self.share > _MOST - _ROUNDING else None

    @property
    def is_clear(self) -> bool:
        return self.share > _NEARLY_ALL - _ROUNDING


def compare(
    table: Iterable[Fact], ranks: Mapping[int, Mapping[str, Any]], nodes: Sequence[Sequence[int]]
) -> list[Difference]:
    """ranks: each one's facts. nodes: the ranks of each. What could not be read has no vote."""
    votes = {rank: 1 / len(node) if len(nodes) > 1 else 1.0 for node in nodes for rank in node}
    found = []
    for fact in table:
        if fact.differs != "fine":
            seen = {rank: facts.get(fact.name, NOT_READABLE) for rank, facts in ranks.items()}
            for name, breaks, values in _entries(fact, seen):
                groups = _by_value(_near(values, fact.near) if fact.near else values)
                if len(groups) > 1:
                    found.append(_difference(name, breaks, groups, votes))
    return found


def group(values: Mapping[int, Any]) -> list[Group]:
    """The values, each with the ranks that have it, by the lowest of them."""
    seen = {rank: _plain(value) for rank, value in values.items()}
    return [(values[who[0]], tuple(sorted(who))) for who in _by_value(seen).values()]


def not_readable(ranks: Mapping[int, Mapping[str, Any]]) -> dict[str, list[int]]:
    """The facts that some rank could not read -> those ranks."""
    found: dict[str, list[int]] = {}
    for rank, facts in ranks.items():
        for name, value in facts.items():
            if value == NOT_READABLE:
                found.setdefault(name, []).append(rank)
    return found


def _entries(
    fact: Fact, seen: Mapping[int, Any]
) -> Iterator[tuple[str, bool, Mapping[int, Hashable]]]:
    """The fact's values, or those of each entry of it, where not all ranks have the same."""
    known = {rank: value for rank, value in seen.items() if value != NOT_READABLE}
    first = next(iter(known.values()), None)
    if all(value == first for value in known.values()):
        return
    if not any(isinstance(value, Mapping) for value in known.values()):
        yield fact.name, fact.breaks(), {rank: _plain(value) for rank, value in known.items()}
        return
    mappings = {rank: v if isinstance(v, Mapping) else {} for rank, v in known.items()}
    for entry in sorted({entry for value in mappings.values() for entry in value} - fact.free):
        values = {rank: _plain(value.get(entry)) for rank, value in mappings.items()}
        yield f"{fact.name}.{entry}", fact.breaks(entry), values


def _plain(value: Any) -> Hashable:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, sort_keys=True)


def _near(values: Mapping[int, Hashable], near: float) -> Mapping[int, Hashable]:
    """Numbers near the median as the median."""
    known = [value for value in values.values() if isinstance(value, int | float)]
    middle = statistics.median_low(known) if known else 0
    return {
        rank: middle
        if isinstance(value, int | float) and abs(value - middle) <= near * abs(middle)
        else value
        for rank, value in values.items()
    }


def _by_value(values: Mapping[int, Hashable]) -> dict[Hashable, list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(value, []).append(rank)
    return groups


def _difference(
    name: str, breaks: bool, groups: Mapping[Hashable, list[int]], votes: Mapping[int, float]
) -> Difference:
    weights = {value: sum(votes[rank] for rank in ranks) for value, ranks in groups.items()}
    ordered = sorted(groups.items(), key=lambda group: (-weights[group[0]], min(group[1])))
    share = weights[ordered[0][0]] / sum(weights.values())
    made = tuple((value, tuple(sorted(ranks))) for value, ranks in ordered)
    return Difference(name, breaks, made, share)

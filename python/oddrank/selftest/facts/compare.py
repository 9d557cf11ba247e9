"""Finds facts in which ranks differ, and the value that most have. Pure.

A node has one vote, which its ranks share: a node with eight ranks does not outvote one with four.
Within a single node each rank has a vote. Most means two thirds: of two nodes, or two ranks,
neither can be called odd.
"""

import json
import statistics
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oddrank.peers import Majority, majority
from oddrank.selftest.facts import NOT_READABLE, Fact, Facts

_MOST = 2 / 3
# From three of four on: beyond doubt.
_NEARLY_ALL = 3 / 4
_ROUNDING = 1e-9

# A value, and the ranks that have it.
Group = tuple[Any, tuple[int, ...]]


@dataclass(frozen=True)
class Difference:
    """A fact in which ranks differ. voters: nodes, or ranks of a single node."""

    name: str
    breaks: bool
    most: Majority[int, Hashable]
    voters: Literal["nodes", "ranks"]

    @property
    def groups(self) -> tuple[Group, ...]:
        """Each value with its ranks; by votes, the most first."""
        return self.most.groups

    @property
    def common(self) -> Group | None:
        """The value of most ranks, and those ranks."""
        return self.groups[0] if self.most.is_enough else None

    @property
    def share(self) -> float:
        """The first value's share of the votes."""
        return self.most.count / self.most.votes

    @property
    def is_clear(self) -> bool:
        return self.share > _NEARLY_ALL - _ROUNDING


def compare(
    table: Iterable[Fact], ranks: Mapping[int, Mapping[str, object]], nodes: Sequence[Sequence[int]]
) -> list[Difference]:
    """Returns the facts that differ. ranks: rank -> its facts. Values not readable have no vote."""
    votes = {rank: 1 / len(node) if len(nodes) > 1 else 1.0 for node in nodes for rank in node}
    voters: Literal["nodes", "ranks"] = "nodes" if len(nodes) > 1 else "ranks"
    found = []
    for fact in table:
        if fact.differs != "fine":
            seen = {rank: facts.get(fact.name, NOT_READABLE) for rank, facts in ranks.items()}
            for name, breaks, values in _entries(fact, seen):
                alike = _near(values, fact.near) if fact.near else values
                most = majority(dict(sorted(alike.items())), least=_MOST - _ROUNDING, weights=votes)
                if most.deviants:
                    found.append(Difference(name, breaks, most, voters))
    return found


def group(values: Mapping[int, Any]) -> list[Group]:
    """Returns each value with its ranks, in the order of `values`."""
    groups: dict[Hashable, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(_plain(value), []).append(rank)
    return [(values[who[0]], tuple(sorted(who))) for who in groups.values()]


def not_readable(ranks: Mapping[int, Mapping[str, object]]) -> dict[str, list[int]]:
    """Returns fact -> the ranks that could not read it."""
    found: dict[str, list[int]] = {}
    for rank, facts in ranks.items():
        for name, value in facts.items():
            if value == NOT_READABLE:
                found.setdefault(name, []).append(rank)
    return found


def _entries(
    fact: Fact, seen: Mapping[int, Any]
) -> Iterator[tuple[str, bool, Mapping[int, Hashable]]]:
    """Yields (name, breaks, values) of a fact that differs, or of each entry of a mapping."""
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
    """Returns the values with numbers near their median replaced by it."""
    known = [value for value in values.values() if isinstance(value, int | float)]
    middle = statistics.median_low(known) if known else 0
    return {
        rank: middle
        if isinstance(value, int | float) and abs(value - middle) <= near * abs(middle)
        else value
        for rank, value in values.items()
    }


def shared_gpus(
    ranks: Mapping[int, Facts], nodes: Sequence[Sequence[int]]
) -> Iterator[tuple[str, list[int]]]:
    """Yields GPUs that several ranks of a node would take, with these ranks.

    Yields none if on every node all ranks share one GPU: a trial on a machine with one GPU.
    """
    users: list[dict[str, list[int]]] = []
    for node in nodes:
        users.append({})
        for rank in node:
            gpu = ranks[rank].get("gpu_uuid") if rank in ranks else None
            if isinstance(gpu, str) and gpu != NOT_READABLE:
                users[-1].setdefault(gpu, []).append(rank)
    if all(len(gpus) <= 1 < len(node) for gpus, node in zip(users, nodes, strict=True)):
        return
    for gpus in users:
        yield from ((gpu, those) for gpu, those in gpus.items() if len(those) > 1)

"""Judges digests: which ranks hold other bits than most copies. Pure: data in, data out."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from oddrank.finding import ranks_text

Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True)
class Different:
    """A tensor whose copies are not the same. place: see `locate`."""

    name: str
    what: str
    dtype: str
    shape: tuple[int, ...]
    place: Mapping[str, Any] | None = None


@dataclass
class Outlier:
    """Tensors in which the same ranks of a group are odd; ranks is empty without a majority."""

    group: tuple[int, ...]
    ranks: tuple[int, ...]
    compared: int
    tensors: list[Different] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Outlier":
        tensors = [Different(**{**one, "shape": tuple(one["shape"])}) for one in data["tensors"]]
        return Outlier(tuple(data["group"]), tuple(data["ranks"]), int(data["compared"]), tensors)


@dataclass(frozen=True)
class Layouts:
    """Members of a group that hold other tensors. ranks: the minority, or none."""

    group: tuple[int, ...]
    ranks: tuple[int, ...]
    lines: tuple[str, ...]


def minority(values: Mapping[int, Value]) -> tuple[int, ...] | None:
    """Returns the ranks without the value of the majority: () if none has one, None if all alike.

    A majority is more than half: of two copies none is.
    """
    ranks: dict[Value, list[int]] = defaultdict(list)
    for rank, value in values.items():
        ranks[value].append(rank)
    if len(ranks) <= 1:
        return None
    usual = max(ranks.values(), key=len)
    if 2 * len(usual) <= len(values):
        return ()
    return tuple(sorted(values.keys() - set(usual)))


def outliers(
    group: Sequence[int], lines: Sequence[Sequence[Any]], digests: Mapping[int, Sequence[str]]
) -> list[Outlier]:
    """Returns the outliers of a group, the ones with a majority first.

    lines: what, name, dtype, shape of each tensor. digests: rank -> of each tensor.
    """
    found: dict[tuple[int, ...], Outlier] = {}
    for number, (what, name, dtype, shape) in enumerate(lines):
        own = {rank: digests[rank][number] for rank in group}
        odd = minority(own)
        if odd is None:
            continue
        outlier = found.setdefault(odd, Outlier(tuple(group), odd, len(lines)))
        outlier.tensors.append(Different(name, what, dtype, tuple(shape)))
    return sorted(found.values(), key=lambda one: (not one.ranks, one.ranks))


def layouts(
    group: Sequence[int], lines: Mapping[int, Sequence[Sequence[Any]]]
) -> tuple[Layouts | None, list[list[Any]]]:
    """Compares which tensors the ranks have. Returns how they differ, and those that all share."""
    texts = {rank: {(str(x[0]), str(x[1])): list(x) for x in lines[rank]} for rank in group}
    first = texts[group[0]]
    shared = [x for key, x in first.items() if all(texts[rank].get(key) == x for rank in group)]
    odd = minority({rank: repr(sorted(map(repr, lines[rank]))) for rank in group})
    if odd is None:
        return None, shared
    told = []
    for key in sorted({key for own in texts.values() for key in own}):
        kinds: dict[str, list[int]] = defaultdict(list)
        for rank in group:
            one = texts[rank].get(key)
            kinds["none" if one is None else f"{one[2]} {one[3]}"].append(rank)
        if len(kinds) > 1:
            said = ", ".join(f"{kind} on {ranks_text(ranks)}" for kind, ranks in kinds.items())
            told.append(f"{key[1]} ({key[0]}): {said}")
    return Layouts(tuple(group), odd, tuple(told or ["their order"])), shared

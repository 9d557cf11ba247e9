"""Sums up fingerprints of many places (cores, multiprocessors) and repeats: which are odd."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypedDict

if TYPE_CHECKING:
    from oddrank.launch import Launch

# A rank reports at most this many odd fingerprints.
_TOLD = 8


class OddPrint(TypedDict):
    """A place's fingerprint that is not the unit's most frequent one."""

    unit: str
    place: str
    repeat: int
    got: str


class Prints(TypedDict):
    """A rank's fingerprints. hashes: each unit's most frequent one. odd: the first other ones.

    kind: ranks of the same kind must have the same hashes. golden: hashes known beforehand.
    """

    kind: str
    golden: dict[str, str]
    hashes: dict[str, str]
    places: int
    computed: int
    odd_count: int
    odd: list[OddPrint]


class GpuPrints(Prints):
    """places_there: the GPU's multiprocessors."""

    places_there: int


# Computes a rank's fingerprints for so many seconds; None if they can't be had here.
Compute: TypeAlias = "Callable[[Launch, float], Prints | None]"


def summary(
    kind: str, golden: Mapping[str, int], seen: Iterable[tuple[str, int, Mapping[str, int]]]
) -> Prints:
    """Returns a rank's result from its fingerprints, each (place, repeat, unit -> hash).

    golden: unit -> the hash known beforehand.
    """
    known = list(seen)
    units = list(dict.fromkeys(unit for _, _, hashes in known for unit in hashes))
    counts = {unit: Counter(h[unit] for _, _, h in known if unit in h) for unit in units}
    usual = {unit: counts[unit].most_common(1)[0][0] for unit in units}
    odd: list[OddPrint] = [
        {"unit": unit, "place": place, "repeat": repeat, "got": _hex(got)}
        for place, repeat, hashes in known
        for unit, got in hashes.items()
        if got != usual[unit]
    ]
    return {
        "kind": kind,
        "golden": {unit: _hex(value) for unit, value in golden.items()},
        "hashes": {unit: _hex(value) for unit, value in usual.items()},
        "places": len({place for place, _, _ in known}),
        "computed": len(known),
        "odd_count": len(odd),
        "odd": odd[:_TOLD],
    }


def _hex(value: int) -> str:
    return f"{value:016x}"

"""Measures a rank's own device: a module for hosts and one for GPUs, with the same functions.

Sums up fingerprints of many places (cores, multiprocessors) and repeats: which are odd.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

# Both modules have
#   kind(launch) -> str: equal for ranks whose figures may be compared;
#   A_TURN: repeats that a rank makes before others of its host have their turn;
#   speed(launch, repeats) -> dict[str, list[float]]: metric -> figures, for wanted metrics that can
#       be measured here; repeats: metric -> number of repeats;
#   at(number): context manager, around a turn's measurements: chooses the part of the device that
#       they use; ranks that measure at the same time have different numbers;
#   alone(launch, metric) -> str: a part of the host that only one rank at a time may use while it
#       measures the metric; "": none;
#   fingerprint(launch, seconds) -> Prints: computed for so many seconds.

_MOVED = {"copy": 2}  # bytes that a way moves for each byte of a buffer; those that are absent: 1
_TOLD = 8  # a rank reports at most this many odd fingerprints


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


def most(repeats: Mapping[str, int], names: Iterable[str]) -> int:
    """Returns the most repeats that are wanted of these metrics; 0: none is wanted."""
    return max((repeats[name] for name in names if name in repeats), default=0)


def rates(times: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, list[float]]:
    """Returns metric -> GB/s. names: metric -> way; times: the native part's, by way."""
    return {
        name: [times["bytes"] * _MOVED.get(way, 1) / seconds / 1e9 for seconds in times[way]]
        for name, way in names.items()
    }

"""Sums up fingerprints of many places (cores, multiprocessors) and repeats: which are odd."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

# A rank reports at most this many odd fingerprints.
_TOLD = 8


def summary(
    kind: str, golden: Mapping[str, int], seen: Iterable[tuple[str, int, Mapping[str, int]]]
) -> dict[str, Any]:
    """Returns a rank's result from its fingerprints, each (place, repeat, unit -> hash).

    kind: ranks of the same kind must have the same hashes. golden: hashes known beforehand.
    In the result, hashes: each unit's most frequent one; odd: the other ones, with their places.
    """
    known = list(seen)
    units = list(dict.fromkeys(unit for _, _, hashes in known for unit in hashes))
    counts = {unit: Counter(h[unit] for _, _, h in known if unit in h) for unit in units}
    usual = {unit: counts[unit].most_common(1)[0][0] for unit in units}
    odd = [
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

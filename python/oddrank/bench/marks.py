"""What a heat map frames: the rows, columns and cells of whom the findings name. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from oddrank.bench.matrices import Matrix

Box = tuple[int, int, int, int]
"""First row, first column, rows, columns."""


def marks(
    findings: Iterable[Mapping[str, Any]], matrix: Matrix, world: object, *, latency: bool = False
) -> list[Box]:
    """A slow sender's row, a slow receiver's column, both of a slow rank, a slow link's cells.

    Only where it was slow: who is slow between nodes need not be so inside its own. Delays are
    framed among the latencies, the rest among the bandwidths.
    """
    boxes: list[Box] = []
    members = _members(matrix, world)
    size = len(matrix.names)
    for finding in findings:
        who, cause = finding.get("who"), str(finding.get("cause", ""))
        if finding.get("condition") == "unknown" or not isinstance(who, dict):
            continue
        if cause.startswith("delayed") != latency or _is_of_others(finding, matrix):
            continue
        if who.get("kind") == "link":
            boxes += _link(who, matrix, members)
            continue
        places = _places(who, matrix, members)
        if len(places) == size:  # the whole node of which this is the inside
            continue
        boxes += [(i, 0, 1, size) for i in places if not cause.endswith("receiver")]
        boxes += [(0, i, size, 1) for i in places if not cause.endswith("sender")]
    return list(dict.fromkeys(boxes))


def _is_of_others(finding: Mapping[str, Any], matrix: Matrix) -> bool:
    """Whether the finding says that it was seen in links of another kind than the matrix has."""
    evidence = finding.get("evidence")
    first = evidence[0] if isinstance(evidence, list) and evidence else None
    source = str(first.get("source")) if isinstance(first, dict) else ""
    kind, of = source.split(" ")[1:2], matrix.where.split(" ")[:1]
    return bool(kind and of[0]) and kind != of


def _link(who: Mapping[str, Any], matrix: Matrix, members: list[set[int]] | None) -> list[Box]:
    """Two cells; one where only one way of the link is named (`n1 to n2`)."""
    device = who.get("device")
    ends = re.split(r" to | and ", device) if isinstance(device, str) else []
    if len(ends) == 2 and set(ends) <= set(matrix.names):
        i, j = map(matrix.names.index, ends)
        both = " and " in str(device)
    else:
        places = _places(who, matrix, members)
        ranks = _ranks(who)
        if len(places) != 2 or (members is not None and not ranks <= set().union(*members)):
            return []
        (i, j), both = places, True
    return [(i, j, 1, 1), (j, i, 1, 1)] if both else [(i, j, 1, 1)]


def _places(who: Mapping[str, Any], matrix: Matrix, members: list[set[int]] | None) -> list[int]:
    """The members of the matrix that are named, by rank, else by host."""
    if members is None:
        return [i for i, name in enumerate(matrix.names) if name == who.get("host")]
    ranks = _ranks(who)
    return [i for i, own in enumerate(members) if own & ranks]


def _ranks(who: Mapping[str, Any]) -> set[int]:
    listed = who.get("ranks")
    return {r for r in listed if isinstance(r, int)} if isinstance(listed, list) else set()


def _members(matrix: Matrix, world: object) -> list[set[int]] | None:
    """The ranks behind each name; None where they are not known."""
    if matrix.ranks is not None:
        return [set(own) for own in matrix.ranks]
    found = [re.fullmatch(r"(?:rank )?(\d{1,9})", name) for name in matrix.names]
    if all(found):
        return [{int(match[1])} for match in found if match]
    return [{i} for i in range(len(found))] if world == len(found) else None

"""Finds the first call of a group in which its ranks issued different operations. Pure.

Compares only properties that are equal on all ranks of a right program: not outputs of which only
the root has one, and not splits that each rank chooses. csrc/triage/flight_dump.cpp has the same
rules for Flight Recorder dumps, whose names of operations differ.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# Operations of which all ranks share the size that they put in, or the one that they get. Inputs of
# all_gather may differ: the lists of outputs are of all ranks.
_BY_INPUT = (
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "gather", "reduce_scatter",
    "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced",
)  # fmt: skip
_BY_OUTPUT = ("all_gather", "scatter")
# Lengths of the history that must repeat, tried in this order, and how often it must have repeated.
_PATTERNS = (3, 8, 24)
_SEEN = 2
_WINDOW = 16  # calls to look for the same operations in another order

Differs = Literal["op", "dtype", "sizes", "root", "order"]


@dataclass(frozen=True, slots=True)
class Signature:
    """An issued operation. dtype "", elements None, root None: not known, or none."""

    op: str
    dtype: str = ""
    inputs: int | None = None
    """Number of elements that the rank puts in."""
    outputs: int | None = None
    root: int | None = None

    @property
    def size(self) -> int | None:
        if self.op in _BY_OUTPUT:
            return self.outputs
        return self.inputs if self.op in _BY_INPUT else None


def differs(one: Signature, other: Signature) -> Differs | None:
    """Returns in what two operations differ that can't belong to one call; None if they may."""
    if one.op != other.op:
        return "op"
    if one.root is not None and other.root is not None and one.root != other.root:
        return "root"
    if one.dtype and other.dtype and one.dtype != other.dtype:
        return "dtype"
    if one.size is not None and other.size is not None and one.size != other.size:
        return "sizes"
    return None


Issued = Mapping[int, Mapping[Signature, Sequence[int]]]
"""Sequence number -> what was issued there -> by which ranks. No send or recv."""


def first_difference(
    issued: Issued,
) -> tuple[int, Differs, list[tuple[Signature, tuple[int, ...]]]] | None:
    """Returns the first number at which ranks differ, in what, and each variant with its ranks.

    The commonest variant is the first.
    """
    for seq in sorted(issued):
        variants = _variants(issued[seq]) if len(issued[seq]) > 1 else []
        if len(variants) < 2:
            continue
        (usual, usual_ranks), (odd, odd_ranks) = variants[:2]
        if how := differs(usual, odd):
            is_reordered = _reordered(issued, seq, usual_ranks[0], odd_ranks[0])
            return seq, "order" if is_reordered else how, variants
    return None


Step = tuple[Signature, Sequence[int]]
"""An operation, and the ranks that may do the same."""


def fork(ways: Mapping[int, Sequence[Step]]) -> tuple[int, Differs, list[tuple[int, ...]]] | None:
    """Returns the first step at which most ranks that may do the same do, and the others do not.

    The ranks of each side, those that do first.
    """
    issued: dict[int, dict[Signature, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, way in ways.items():
        for number, (signature, _) in enumerate(way):
            issued[number][signature].append(rank)
    if (found := first_difference(issued)) is None:
        return None
    at, how, variants = found
    for _, most in variants:
        could = {*ways[most[0]][at][1]}
        others = [own for _, ranks in variants if ranks != most
                  if (own := tuple(rank for rank in ranks if rank in could))]  # fmt: skip
        if others and 2 * len(most) > len(could):
            return at, how, [most, *others]
    return None


def expected(issued: Issued, seq: int) -> Signature | None:
    """Returns the operation that always followed the calls before `seq`; None: no pattern.

    Training repeats itself. The members must have issued the same before.
    """
    rows = [next(iter(issued[at])) for at in sorted(issued) if at < seq]
    for length in _PATTERNS:
        before = rows[-length:]
        found = [
            rows[at]
            for at in range(length, len(rows))
            if rows[at - 1] == before[-1] and rows[at - length : at] == before
        ]
        if len(found) >= _SEEN and len(set(found)) == 1:
            return found[0]
    return None


def _variants(found: Mapping[Signature, Sequence[int]]) -> list[tuple[Signature, tuple[int, ...]]]:
    """Joins signatures that may belong to one call. The commonest first, then the lowest rank."""
    joined: dict[Signature, list[int]] = {}
    for signature, ranks in found.items():
        same = next((v for v in joined if differs(v, signature) is None), signature)
        joined.setdefault(same, []).extend(ranks)
    made = [(signature, tuple(sorted(ranks))) for signature, ranks in joined.items()]
    return sorted(made, key=lambda variant: (-len(variant[1]), variant[1]))


def _reordered(issued: Issued, seq: int, *ranks: int) -> bool:
    """Returns whether two ranks issued the same operations from `seq` on in another order."""
    left: Counter[Signature | None] = Counter()
    for at in range(seq, seq + _WINDOW):
        one, other = (
            next((each for each, whose in issued.get(at, {}).items() if rank in whose), None)
            for rank in ranks
        )
        if one is None or other is None:
            return False
        left[one] += 1
        left[other] -= 1
        if at > seq and not any(left.values()):
            return True
    return False

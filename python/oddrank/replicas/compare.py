"""Compares checkpoints tensor by tensor, bit by bit: where they part, and which file is odd."""

from collections.abc import Sequence
from typing import Any

from oddrank.finding import Finding
from oddrank.replicas import findings
from oddrank.replicas.checkpoints import Checkpoint, Saved
from oddrank.replicas.locate import index_of, text_of
from oddrank.replicas.majority import minority
from oddrank.report import Report

_MOST_LOCATED = 8
_STEP = 16 << 20


def report(given: Sequence[Checkpoint]) -> Report:
    """Compares two or more. Of three or more, the files that differ from most are named."""
    names = list(dict.fromkeys(name for one in given for name in one.tensors))
    odd: dict[tuple[int, ...], list[str]] = {}
    told: dict[str, str] = {}
    for name in names:
        every = [one.tensors.get(name) for one in given]
        out = minority({i: _key(one) for i, one in enumerate(every)})
        if out is None:
            continue
        odd.setdefault(out, []).append(name)
        if len(told) < _MOST_LOCATED:
            told[name] = _how(every)
    found = [
        findings.different_files([one.path for one in given], out, tensors, told, len(names))
        for out, tensors in odd.items()
    ]
    found += _values(given)
    data = {
        "files": [one.path for one in given],
        "tensors": len(names),
        "different": [name for tensors in odd.values() for name in tensors],
    }
    why = f"{len(names)} tensors of {len(given)} files compared"
    return Report.of("replicas compare", {}, data, found, complete=True, why=why)


def _values(given: Sequence[Checkpoint]) -> list[Finding]:
    found = []
    for name in dict.fromkeys(name for one in given for name in one.values):
        values = {i: one.values.get(name, "none") for i, one in enumerate(given)}
        if len(set(values.values())) > 1:
            paths = [one.path for one in given]
            found.append(findings.different_values(name, list(values.values()), paths))
    return found


def _key(one: Saved | None) -> str:
    return "" if one is None else f"{one.dtype} {one.shape} {one.digest}"


def _how(every: Sequence[Saved | None]) -> str:
    """Words how the first file's tensor differs from the next other one's."""
    first = every[0]
    other = next(one for one in every if _key(one) != _key(first))
    if first is None or other is None:
        return "not in all files"
    if (first.dtype, first.shape) != (other.dtype, other.shape):
        return f"{first.dtype} {list(first.shape)} is not {other.dtype} {list(other.shape)}"
    if first.tensor is None or other.tensor is None:
        return "other digest"
    return first_difference(first.tensor, other.tensor)


def first_difference(one: Any, other: Any) -> str:
    """Returns how many elements differ by their bits, and the first one with both values."""
    import torch

    size = one.element_size()
    pair = [t.detach().contiguous().view(-1).view(torch.uint8) for t in (one, other)]
    count, first = 0, -1
    for at in range(0, pair[0].numel(), _STEP):
        wrong = (pair[0][at : at + _STEP] != pair[1][at : at + _STEP]).view(-1, size).any(1)
        if wrong.any() and first < 0:
            first = at // size + int(wrong.nonzero()[0])
        count += int(wrong.sum())
    values = [
        text_of(bytes(t[first * size : (first + 1) * size].tolist()), one.dtype) for t in pair
    ]
    index = index_of(first, tuple(one.shape))
    return f"{count} of {one.numel()} elements, first at {index}: {values[0]}, {values[1]}"

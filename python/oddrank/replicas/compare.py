"""Compares checkpoints tensor by tensor, bit by bit: where they part, and which file is odd."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from oddrank.finding import Finding, counted, some
from oddrank.replicas import findings
from oddrank.replicas.checkpoints import Checkpoint, Saved
from oddrank.replicas.judge import index_of, minority, text_of
from oddrank.report import Report

_MOST_LOCATED = 8
_FEW = 1 << 20  # elements that are compared at a time
_TINY = 1e-300
# Settings of a training, which transformers pickles: no tensors are lost with them.
_SETTINGS = "training_args.bin"

_WRAPPERS = ("module", "_orig_mod")  # parts of a name that DDP and torch.compile put around a model


def _unwrapped(given: Sequence[Checkpoint]) -> tuple[list[Checkpoint], str]:
    """Leaves out the wrappers' parts of names if that gives the files more names in common."""
    short = [
        {name: ".".join(p for p in name.split(".") if p not in _WRAPPERS) for name in one.tensors}
        for one in given
    ]
    common = set.intersection(*(set(one.tensors) for one in given))
    is_unique = all(len(set(names.values())) == len(names) for names in short)
    if not is_unique or len(set.intersection(*(set(n.values()) for n in short))) <= len(common):
        return list(given), ""
    made = [
        replace(one, tensors={names[name]: saved for name, saved in one.tensors.items()})
        for one, names in zip(given, short, strict=True)
    ]
    return made, f", names without {' and '.join(_WRAPPERS)}, which DDP and torch.compile add"


def report(given: Sequence[Checkpoint]) -> Report:
    """Compares two or more. With three or more, names the files that differ from most."""
    given, renamed = _unwrapped(given)
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
            told[name] = _how(every, out, [one.path for one in given])
    found = [
        findings.different_files([one.path for one in given], out, tensors, told, len(names))
        for out, tensors in odd.items()
    ]
    found += _values(given)
    skipped = {f"{one.path}: {name}": why for one in given for name, why in one.skipped.items()}
    data = {
        "files": [one.path for one in given],
        "tensors": len(names),
        "different": [name for tensors in odd.values() for name in tensors],
        "skipped": skipped,
    }
    complete = all(name == _SETTINGS for one in given for name in one.skipped)
    why = f"{counted(len(names), 'tensor')} of {len(given)} files compared{renamed}"
    if skipped:
        why += f"; not compared: {some([f'{of} ({why})' for of, why in skipped.items()], 3)}"
    return Report.of("replicas compare", {}, data, found, complete=complete, why=why)


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


def _how(every: Sequence[Saved | None], odd: Sequence[int], paths: Sequence[str]) -> str:
    """Describes how an odd file's tensor, or the first one's, differs from the next file's."""
    first = every[odd[0] if odd else 0]
    other = next(one for i, one in enumerate(every) if i not in odd and _key(one) != _key(first))
    if first is None or other is None:
        has = [path for path, one in zip(paths, every, strict=True) if one]
        lacks = [path for path, one in zip(paths, every, strict=True) if not one]
        return f"only in {some(has, 3)}" if len(has) <= len(lacks) else f"not in {some(lacks, 3)}"
    if (first.dtype, first.shape) != (other.dtype, other.shape):
        return f"{first.dtype} {list(first.shape)} is not {other.dtype} {list(other.shape)}"
    return first_difference(first.load(), other.load(), " instead of " if odd else ", ")


def first_difference(one: Any, other: Any, between: str = ", ") -> str:
    """Returns how many elements differ by their bits, and the first one with both values.
    For floats also the largest difference, and how many are NaN or infinite in one tensor only.
    """
    import torch

    shape, size = tuple(one.shape), one.element_size()
    pair = [t.detach().resolve_conj().resolve_neg().contiguous().view(-1) for t in (one, other)]
    count, first, unlike, largest, relative = 0, -1, 0, 0.0, 0.0
    is_float = one.is_floating_point() or one.is_complex()
    for at in range(0, one.numel(), _FEW):
        parts = [t[at : at + _FEW] for t in pair]
        bits = [part.view(torch.uint8).view(-1, size) for part in parts]
        wrong = (bits[0] != bits[1]).any(1)
        count += int(wrong.sum())
        if first < 0 and wrong.any():
            first = at + int(wrong.nonzero()[0])
        if not is_float:
            continue
        try:
            a, b = (torch.view_as_real(p) if p.is_complex() else p.double() for p in parts)
        except NotImplementedError:  # a type that torch only stores
            is_float = False
            continue
        unlike += int((a.isfinite() != b.isfinite()).sum())
        apart, most = (a - b).abs(), torch.maximum(a.abs(), b.abs())
        finite = apart.isfinite()
        if finite.any():
            largest = max(largest, float(apart[finite].max()))
            relative = max(relative, float((apart / most.clamp_min(_TINY))[finite].max()))
    if first < 0:  # the file has changed since its digest was made
        return "other digest"
    content = (bytes(t[first : first + 1].view(torch.uint8).tolist()) for t in pair)
    both = between.join(text_of(each, one.dtype) for each in content)
    text = f"scalar: {both}"
    if one.dim():
        text = f"{count} of {one.numel()} elements, first at {index_of(first, shape)}: {both}"
    if unlike:
        text += f"; NaN or infinite in one of the two: {unlike}"
    if largest > 0:
        text += f"; largest difference {largest:.4g} (relative {relative:.4g})"
    return text

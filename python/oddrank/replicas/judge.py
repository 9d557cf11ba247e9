"""Finds which ranks hold other bits than most copies, where, and where a NaN or infinity began."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oddrank import _native
from oddrank.finding import grouped, ranks_text
from oddrank.replicas import digests, layer_hooks

_MOST_BLOCKS = 256  # digests that a rank sends at a time


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


def minority(values: Mapping[int, Hashable]) -> tuple[int, ...] | None:
    """Returns the ranks without the value of the majority: () if there is none.
    A majority is more than half: two copies have none. Returns None if all are alike."""
    ranks = grouped((value, rank) for rank, value in values.items())
    if len(ranks) <= 1:
        return None
    usual = max(ranks.values(), key=len)
    if 2 * len(usual) <= len(values):
        return ()
    return tuple(sorted(values.keys() - set(usual)))


def outliers(
    group: Sequence[int], lines: Sequence[Sequence[Any]], by_rank: Mapping[int, Sequence[str]]
) -> list[Outlier]:
    """Returns the outliers of a group, the ones with a majority first.

    lines: kind, name, dtype, shape of each tensor. by_rank: rank -> digest of each tensor.
    """
    found: dict[tuple[int, ...], Outlier] = {}
    for number, (what, name, dtype, shape) in enumerate(lines):
        own = {rank: by_rank[rank][number] for rank in group}
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
        own = {rank: texts[rank].get(key) for rank in group}
        kinds = grouped((f"{one[2]} {one[3]}" if one else "missing", r) for r, one in own.items())
        if len(kinds) > 1:
            said = ", ".join(f"{kind} on {ranks_text(ranks)}" for kind, ranks in kinds.items())
            told.append(f"{key[1]} ({key[0]}): {said}")
    return Layouts(tuple(group), odd, tuple(told or ["their order"])), shared


# Sends this rank's bytes, returns all ranks' bytes.
Gather = Callable[[bytes], Mapping[int, bytes]]


def locate(tensor: Any, gather: Gather) -> dict[str, Any] | None:
    """Returns how many blocks differ, and the first element that does, with each rank's value.
    Returns None if the copies are the same by now. All ranks with a copy call it together."""
    chunk: int = _native.core().REPLICAS_CHUNK
    begin, end = 0, digests.size_of(tensor)
    block = largest = _block_of(end, chunk)
    blocks = different = 0
    while True:
        every = gather(digests.of_blocks(tensor, block, begin, end))
        odd = [at // digests.BYTES for at in _differing(every, digests.BYTES)]
        if not odd:
            return None
        if not blocks:
            blocks, different = len(next(iter(every.values()))) // digests.BYTES, len(odd)
        begin, end = begin + odd[0] * block, min(end, begin + (odd[0] + 1) * block)
        if block == chunk:
            break
        block = _block_of(end - begin, chunk)
    contents = gather(digests.content(tensor, begin, end))
    size = tensor.element_size()
    at = next(iter(_differing(contents, size)), None)
    if at is None:
        return None
    values = grouped(
        (text_of(one[at : at + size], tensor.dtype), rank) for rank, one in contents.items()
    )
    return {
        "blocks": blocks,
        "different": different,
        "block_bytes": largest,
        "index": index_of((begin + at) // size, tuple(tensor.shape)),
        "values": values,
    }


def index_of(number: int, shape: tuple[int, ...]) -> list[int]:
    """Returns the index of the element with this number in row-major order."""
    index: list[int] = []
    for size in reversed(shape):
        index.insert(0, number % size)
        number //= size
    return index


def text_of(content: bytes, dtype: Any) -> str:
    """Returns a value and its bits, which may differ where texts do not: `1.5 (0x3fc00000)`."""
    import torch

    bits = f"0x{int.from_bytes(content, 'little'):0{2 * len(content)}x}"
    value = torch.frombuffer(bytearray(content), dtype=dtype)
    try:
        if value.dtype.is_floating_point and value.element_size() == 1:
            value = value.to(torch.float32)
        number = value.item()
    except (RuntimeError, TypeError, ValueError):  # a type that torch only stores
        return bits
    shown = f"{number:.9g}" if isinstance(number, float) else str(number)
    return f"{shown} ({bits})"


def _block_of(bytes_: int, chunk: int) -> int:
    block = chunk
    while block * _MOST_BLOCKS < bytes_:
        block *= 2
    return block


def _differing(every: Mapping[int, bytes], size: int) -> list[int]:
    """Returns the offsets of the parts of that size that are not the same on all ranks."""
    first, *others = every.values()
    return [
        at
        for at in range(0, len(first), size)
        if any(one[at : at + size] != first[at : at + size] for one in others)
    ]


@dataclass(frozen=True)
class Event:
    """A tensor with a NaN or infinity. order: its number in its step. value: "inf" or "nan"."""

    step: int
    order: int
    kind: str
    name: str
    value: str

    @property
    def tensor(self) -> str:
        return layer_hooks.KINDS[self.kind].words.format(self.name)


@dataclass(frozen=True)
class Origin:
    """The first event, and the ranks that made it: none if that is unknown, and `why`."""

    first: Event
    ranks: tuple[int, ...]
    why: str


def origin(events: Mapping[int, Event | None], *, same_layers: bool) -> Origin | None:
    """Returns where a NaN or infinity began, from each rank's first event; None if none has one.

    same_layers: ranks ran the same layers up to the first event, so that their orders can be
    compared.
    """
    known = {rank: one for rank, one in events.items() if one is not None}
    if not known:
        return None
    moment = min(_moment(one, same_layers) for one in known.values())
    ranks = tuple(sorted(r for r, one in known.items() if _moment(one, same_layers) == moment))
    first = known[ranks[0]]
    if not layer_hooks.KINDS[first.kind].own:
        return Origin(first, (), "ranks exchange it before it shows")
    if len(ranks) > 1 and not same_layers:
        return Origin(first, (), "ranks that ran other layers have it in the same step")
    if len(ranks) == len(events) > 1:
        return Origin(first, (), "all ranks have it at the same moment")
    return Origin(first, ranks, "the other ranks have it later or not at all")


def first_within(events: Iterable[Event | None]) -> Event | None:
    """Returns the first event of the first step with one, if it is before the step's exchange."""
    known = [one for one in events if one is not None]
    first = min(known, key=lambda one: _moment(one, same_layers=True), default=None)
    return None if first is None or layer_hooks.KINDS[first.kind].late else first


def _moment(one: Event, same_layers: bool) -> tuple[int, bool, int]:
    # Ranks that ran more layers before the exchange, such as an evaluation, are not behind it.
    return one.step, layer_hooks.KINDS[one.kind].late, one.order if same_layers else 0

"""Judges in which rank, step and tensor the first NaN or infinity began."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oddrank.replicas import layer_hooks


@dataclass(frozen=True)
class Event:
    """A tensor in which it shows. order: the tensor's number in its step. value: inf, nan, ..."""

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


def judge(events: Mapping[int, Event | None], *, same_layers: bool) -> Origin | None:
    """Returns where it began, from the first event of each rank. None: no rank has one.

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

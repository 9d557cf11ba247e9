"""Where the histories of two ranks part: what their main threads called, issued and stepped.

Ranks of one job do the same as a rule, so the first place where they don't is worth a look. They
are compared from the last anchor on that both have in their windows: a step, or where step() is not
called a collective with the same number in its group, or their beginnings.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oddrank.trace.history import History, Item

NEXT = 5


@dataclass(frozen=True)
class Difference:
    """Where two histories part."""

    a: History
    b: History
    begin: Item | None
    """The anchor; None: there is none, or both are compared from arm() on."""
    compared: bool
    """False: nothing in the windows is common, and the rest is empty."""
    common: int = 0
    """Items that are the same, from the anchor on."""
    last: Item | None = None
    """The last one of them."""
    a_next: tuple[Item, ...] = ()
    b_next: tuple[Item, ...] = ()

    def as_data(self) -> dict[str, Any]:
        return {
            "a": self.a.as_data(),
            "b": self.b.as_data(),
            "compared": self.compared,
            "from": self.begin and asdict(self.begin),
            "common": self.common,
            "last_common": self.last and asdict(self.last),
            "a_next": [asdict(item) for item in self.a_next],
            "b_next": [asdict(item) for item in self.b_next],
        }


def compare(a: History, b: History) -> Difference:
    """Pure: the items from the last common anchor on, up to the first that differs."""
    anchor = _last_common(a, b, _step)
    from_arm = anchor is None and a.whole and b.whole
    anchor = (0, 0) if from_arm else anchor or _last_common(a, b, _collective)
    if anchor is None:
        return Difference(a, b, None, False)
    ours, theirs = a.items[anchor[0] :], b.items[anchor[1] :]
    shared = a.groups & b.groups
    common = 0
    for one, other in zip(ours, theirs, strict=False):
        if not _is_same(one, other, shared):
            break
        common += 1
    return Difference(
        a, b,
        begin=None if from_arm else ours[0],
        compared=True,
        common=common,
        last=ours[common - 1] if common else None,
        a_next=ours[common : common + NEXT],
        b_next=theirs[common : common + NEXT],
    )  # fmt: skip


def text(found: Difference) -> Iterable[str]:
    """The lines of `trace diff`."""
    for side in (found.a, found.b):
        yield f"{side}: {_window(side)}"
    if not found.compared:
        yield "nothing in these windows is common: no step, and no collective with the same number"
        return
    since = "arm()" if found.begin is None else str(found.begin)
    if found.last is not None:
        yield f"the same since {since}: {found.common} calls, steps and collectives, the last one"
        yield f"  {found.last}"
    elif found.a_next or found.b_next:
        yield f"they part at once after {since}"
    else:
        yield "neither has recorded anything of its main thread"
        return
    if not found.a_next and not found.b_next:
        yield "and then neither has anything more"
        return
    for side, items in ((found.a, found.a_next), (found.b, found.b_next)):
        yield f"then {side}:"
        yield from (f"  {item}" for item in items)
        if len(items) < NEXT:
            yield "  nothing more"


def _is_same(one: Item, other: Item, shared: set[str]) -> bool:
    """Of a collective also its size, and its number as far as both know it.

    shared: groups of both. Each rank may have groups without the other (its tensor-parallel ones):
    their names and numbers differ by nature.
    """
    if (one.kind, one.name, one.bytes) != (other.kind, other.name, other.bytes):
        return False
    if one.kind == "collective" and not {one.place, other.place} & shared:
        return True
    is_known = one.sequence is not None and other.sequence is not None
    return one.place == other.place and (not is_known or one.sequence == other.sequence)


def _step(item: Item) -> Any:
    return item.name if item.kind == "step" else None


def _collective(item: Item) -> Any:
    known = item.kind == "collective" and item.sequence is not None
    return (item.place, item.sequence, item.name, item.bytes) if known else None


def _last_common(a: History, b: History, anchor: Callable[[Item], Any]) -> tuple[int, int] | None:
    """Where both have an anchor of one name, with the least behind it; None: nowhere.

    Not simply the last that `a` has: in a second epoch the steps have the names of the first.
    """
    ours, theirs = _last_places(a.items, anchor), _last_places(b.items, anchor)
    return max(((ours[name], theirs[name]) for name in ours.keys() & theirs), key=sum, default=None)


def _last_places(items: Sequence[Item], anchor: Callable[[Item], Any]) -> dict[Any, int]:
    names = ((anchor(item), i) for i, item in enumerate(items))
    return {name: i for name, i in names if name is not None}


def _window(side: History) -> str:
    if side.whole:
        return f"{_steps(side.steps)} in its window" if side.steps else "no step"
    known = f"{_steps(side.steps)} in its window" if side.steps else "no step in its window"
    if not side.overwritten:
        return f"{known}, what was before is overwritten"
    gone = _steps(side.overwritten)
    return f"{known}, the calls of {gone} are overwritten (raise ODDRANK_TRACE_MB)"


def _steps(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"

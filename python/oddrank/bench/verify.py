"""Checks every value of a case, and finds the ranks whose own values are wrong.

csrc/bench/verify fills and compares the values in place, on the host or on the GPU.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from oddrank import _native
from oddrank.bench.backend import Backend, Operation
from oddrank.bench.c10d import all_gather
from oddrank.bench.case import COLLECTIVES, DTYPES, NO_OP, Case, Segment
from oddrank.bench.data import Mismatch
from oddrank.control.stages import RunState
from oddrank.finding import Evidence, Finding, Row, Who, grouped, ranks_text
from oddrank.process_group import Group

# Most runs of a case whose elements can't add up all ranks: each run has other contributors.
_MOST_TURNS = 8
# Elements around a wrong one that `gathered_wrong` compares.
_AROUND = 4096
_MOST_GATHERED = 64 << 20


class Values:
    """Fills and checks segments of a buffer: on the host, or on the GPU, all in one launch."""

    def __init__(self, device: int, world: int) -> None:
        self._device, self._world = device, world
        self._native = _native.core() if device < 0 else _native.cuda()

    def fill(
        self, address: int, case: Case, op: str, segments: Iterable[Segment], turn: int
    ) -> None:
        places = _places(address, case, segments)
        if self._device >= 0:
            self._native.gpu_fill(self._device, case.dtype, op, self._world, turn, places)
            return
        for at, source, first, count in places:
            self._native.bench_fill(at, case.dtype, op, source, self._world, first, count, turn)

    def check(
        self, address: int, case: Case, op: str, segments: Iterable[Segment], turn: int
    ) -> list[tuple[int, int, float, float]]:
        """Returns (how many are wrong, index of the first, expected, got) of each segment."""
        places = _places(address, case, segments)
        found: list[tuple[int, int, float, float]]
        if self._device >= 0:
            found = self._native.gpu_check(self._device, case.dtype, op, self._world, turn, places)
        else:
            check = self._native.bench_check
            found = [
                check(at, case.dtype, op, source, self._world, first, count, turn)
                for at, source, first, count in places
            ]
        return found


def _places(
    address: int, case: Case, segments: Iterable[Segment]
) -> list[tuple[int, int, int, int]]:
    """Returns (address, source, first element, count) of each segment, for the native checks."""
    size = DTYPES[case.dtype]
    return [(address + s.offset * size, max(0, s.source), s.first, s.count) for s in segments]


def verify(
    group: Group, backend: Backend, case: Case, operation: Operation, turns: int = 0
) -> Mismatch | None:
    """Returns the first wrong value that this rank saw; None if all were right here.

    Runs the case until every rank has contributed, or `turns` times. All ranks call it together.
    """
    values = Values(backend.device, group.world)
    layout = COLLECTIVES[case.collective].layout(case, group.rank, group.world)
    seen: Mismatch | None = None
    number = 0
    for _ in range(turns or turns_of(case, group.world)):
        # A new pattern each time: an earlier case's results must not pass for this one's.
        turn = group.next_turn()
        values.fill(operation.send, case, case.op, layout.send, turn)
        if layout.send:
            group.context.own(operation.sent())
        group.context.step(f"verify {case}", waiting=True)
        operation.once()
        group.context.step(f"verified {case}")
        found = values.check(operation.recv, case, case.op, layout.recv, turn)
        for segment, (wrong, index, expected, got) in zip(layout.recv, found, strict=True):
            number += wrong
            if wrong and seen is None:
                at, element = segment.offset + index, segment.first + index
                seen = {
                    "observer": group.ranks[group.rank], "case": str(case), "index": at,
                    "expected": expected, "got": got, "wrong": wrong, "element": element,
                    "turn": turn, "among": group.among,
                }  # fmt: skip
    if seen:
        seen["wrong"] = number
    return seen


def localise(group: Group, backend: Backend, case: Case, seen: Mismatch | None) -> list[int] | None:
    """Returns the ranks whose own values look wrong from here; None if no rank saw a wrong value.

    All ranks call it together.
    """
    no_rank = group.world
    (observer,) = group.smallest([group.rank if seen else no_rank])
    if int(observer) == no_rank:
        return None
    place = [seen["element"], seen["turn"]] if seen else [0, 0]
    element, turn = group.said_by(int(observer), place)
    return gathered_wrong(group, backend, case, element, turn)


def turns_of(case: Case, world: int) -> int:
    """Returns how many runs let every rank contribute, at most _MOST_TURNS; 1 for a barrier."""
    if not case.count:
        return 1
    return int(_native.core().bench_turns(case.dtype, case.op, world, case.count, _MOST_TURNS))


def gathered_wrong(
    group: Group, backend: Backend, case: Case, element: int, turn: int
) -> list[int]:
    """Gathers all ranks' own values around `element`; returns the job's ranks with wrong ones.

    All ranks call it together. Values depend on the rank: it shows up, too, if a rank sends
    another rank's.
    """
    size = DTYPES[case.dtype]
    count = max(1, min(_AROUND, case.count, _MOST_GATHERED // (group.world * size)))
    start = max(0, element - count // 2)
    torch, values = group.torch, Values(backend.device, group.world)
    dtype = getattr(torch, case.dtype)
    mine = torch.empty(count * size, dtype=torch.uint8, device=group.device)
    pieces = torch.empty(group.world * count * size, dtype=torch.uint8, device=group.device)
    own = Segment(0, count, group.rank, start)
    values.fill(mine.data_ptr(), case, NO_OP, [own], turn)
    group.context.own(mine.view(dtype))
    group.context.step(f"gather {case}", waiting=True)
    all_gather(group.dist)(pieces, mine, group.handle)
    group.synchronize()
    group.context.step(f"gathered {case}")
    every = [Segment(rank * count, count, rank, start) for rank in range(group.world)]
    found = values.check(pieces.data_ptr(), case, NO_OP, every, turn)
    return [group.ranks[rank] for rank, (wrong, *_) in enumerate(found) if wrong]


# Group that ran the case -> end of a sentence.
_AMONG = {"world": "", "node": " within its node", "across": " across nodes"}

# fmt: off
WRONG_VALUES = Row(
    "wrong-values", "unknown",
    "wrong values in stage {stage}, seen by {observers}; their origin is unknown{more}",
    ("low", "all ranks contribute to a value: the rank that sees it wrong may not have caused it"),
    ("run oddrank selftest several times: it compares every rank's own values",))
NOT_LOCALISED = replace(
    WRONG_VALUES, sure=("low", "in a gather without arithmetic afterwards, {why}"),
    next=("run it again, several times: the fault comes and goes",
          "run it on halves of the ranks: the fault goes with one of them"))
WRONG_CONTRIBUTION = Row(
    "wrong-contribution", "broken",
    "{who} {be} broken: wrong values in collectives of stage {stage}",
    ("high", "a gather without arithmetic showed these values wrong on all ranks"),
    ("run the self-test on its host alone; if it fails there too, take the device out",),
    drains_node=True)
# fmt: on


def wrong_values(stage: str, seen: Sequence[Mismatch]) -> Finding:
    return _wrong(WRONG_VALUES, Who("rank"), stage, seen)


def _wrong(
    row: Row, who: Who, stage: str, seen: Sequence[Mismatch], *, more: str = "", why: str = ""
) -> Finding:
    observers, shown = Who("rank", tuple(m["observer"] for m in seen)), mismatch_evidence(seen)
    return row.found(who, *shown, stage=stage, observers=observers, more=more, why=why)


def origin_of(
    run: RunState, stage: str, seen: Sequence[Mismatch], views: Mapping[int, Collection[int]],
    groups: Iterable[Sequence[int]],
) -> Finding:  # fmt: skip
    """Names the ranks that all members of their group saw wrong; none if they are too many.
    If half of a group looks wrong, the check or something shared may be at fault.

    views: rank -> the ranks whose own values look wrong from there. seen: in these groups.
    """
    suspects, sure = set[int](), True
    for ranks in groups:
        wrong = set.intersection(*(set(views[rank]) for rank in ranks))
        sure = sure and (len(wrong) < 2 or 2 * len(wrong) < len(ranks))
        suspects |= wrong
    if suspects and sure:
        return _wrong(WRONG_CONTRIBUTION, run.who(suspects), stage, seen)
    more, why = "", "no rank's own values were wrong on all ranks"
    if suspects:
        who = Who("rank", tuple(sorted(suspects)))
        why = f"the values of {who} were wrong on all ranks: half of the ranks or more"
        more = f": suspects are {who}, too many of {run.world} to name one"
    return _wrong(NOT_LOCALISED, Who("rank"), stage, seen, more=more, why=why)


def mismatch_evidence(seen: Sequence[Mismatch]) -> tuple[Evidence, ...]:
    """Lists each observer's first mismatch, then the second ones; equal ones share a line."""
    each = grouped((m["observer"], m) for m in seen).values()
    in_turn = (m for nth in zip_longest(*each) for m in nth if m is not None)
    observers = grouped((_mismatch(m), m["observer"]) for m in in_turn)
    return tuple(
        Evidence(f"{ranks_text(ranks)}: {what}", "compared by value")
        for what, ranks in list(observers.items())[:8]
    )


def _mismatch(m: Mismatch) -> str:
    among = _AMONG.get(m["among"], f" in {m['among']}")  # or "group 2", of --split
    return (
        f"{m['case']}{among}: {m['wrong']} wrong values,"
        f" the first at {m['index']}: expected {m['expected']:g}, got {m['got']:g}"
    )

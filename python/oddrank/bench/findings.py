"""The causes that a sweep and the self-test's collectives can name."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from oddrank.bench.data import Mismatch
from oddrank.bench.sampling import ENOUGH
from oddrank.control.stages import RunState
from oddrank.finding import Evidence, Finding, Who, ranks_text
from oddrank.finding import Row as CauseRow
from oddrank.peers import Late

# Group that ran the case -> end of a sentence.
_AMONG = {"world": "", "node": " within its node", "across": " across nodes"}


# fmt: off
WRONG_VALUES = CauseRow(
    "wrong-values", "unknown",
    "wrong values in stage {stage}, seen by {observers}; their origin is unknown{more}",
    ("low", "all ranks contribute to a value: the rank that sees it wrong may not have caused it"),
    ("run oddrank selftest several times: it compares every rank's own values",))
NOT_LOCALISED = replace(
    WRONG_VALUES, sure=("low", "in a gather without arithmetic afterwards, {why}"),
    next=("run it again, several times: the fault comes and goes",
          "run it on halves of the ranks: the fault goes with one of them"))
WRONG_CONTRIBUTION = CauseRow(
    "wrong-contribution", "broken",
    "{who} {be} broken: wrong values in collectives of stage {stage}",
    ("high", "a gather without arithmetic showed these values wrong on all ranks"),
    ("run the self-test on its host alone; if it fails there too, take the device out",),
    drains_node=True)
# In both measurements the rank was later than the healthy spread explains.
LATE = CauseRow(
    "late-arrival", "late", "{who} arrives {by} late at collectives: in {share:.0%} of {n}"
    " iterations the others wait for it",
    ("high", "measured twice, and its median is outside the range of the others"),
    ("top -H on its host: which processes use the cores of this rank",
     "oddrank trace where, during training: what it does while the others wait"))
# With no time for the second measurement, or too few iterations: names no rank.
LATE_ONCE = CauseRow(
    "not-measured-again", "unknown",
    "{rank} arrived late once, and there was no time to measure again",
    ("low", "seen in one measurement"), ("run it again, with a longer --deadline",))
LATE_IN_FEW = CauseRow(
    "too-few-iterations", "unknown", "{rank} seems to arrive {by_ms:.3g} ms late, but in only {n}"
    f" iterations: {ENOUGH} are needed",
    ("low", "too few iterations fit into the budget"), ("run it again, with a longer --budget",))
# fmt: on


def wrong_values(stage: str, seen: Sequence[Mismatch]) -> Finding:
    return _wrong(WRONG_VALUES, Who("rank"), stage, seen)


def _wrong(
    row: CauseRow, who: Who, stage: str, seen: Sequence[Mismatch], *, more: str = "", why: str = ""
) -> Finding:
    observers, shown = Who("rank", tuple(m["observer"] for m in seen)), mismatch_evidence(seen)
    return row.found(who, *shown, stage=stage, observers=observers, more=more, why=why)


def origin_of(
    run: RunState,
    stage: str,
    seen: Sequence[Mismatch],
    views: Mapping[int, Collection[int]],
    groups: Iterable[Sequence[int]],
) -> Finding:
    """Names the ranks that all members of their group saw wrong: a rank that receives badly sees
    all wrong. If half of a group or more are, the check or something shared may be at fault.

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


def late(run: RunState, one: Late, row: CauseRow = LATE) -> Finding:
    who = run.who([one.rank])
    by = f"{one.by / 1e3:.3g} ms" if one.by >= 100 else f"{one.by:.0f} us"
    if row is LATE and run.world < 3:
        row = replace(row, sure=("medium", "measured twice, but with only one other rank to"
                                 " compare with"))  # fmt: skip
    return row.found(
        who if row.cause == LATE.cause else Who("rank"),
        Evidence(
            "time between leaving a collective and the next", "4-byte all_reduces, median",
            one.others + one.by, "us", one.others,
        ),
        Evidence("arrives after the others by", "the same, clocks aligned", one.behind, "us"),
        Evidence("healthy spread (median of last minus first)", "the same", one.spread, "us"),
        Evidence("smallest delay that counts as late", "twice the spread", one.line, "us"),
        rank=who, by=by, share=one.share, n=one.n, by_ms=one.by / 1e3,
    )  # fmt: skip


def mismatch_evidence(seen: Sequence[Mismatch]) -> tuple[Evidence, ...]:
    """Lists each observer's first mismatch, then the second ones; equal ones share a line."""
    nth: Counter[int] = Counter()
    places = []
    for m in seen:
        places.append(nth[m["observer"]])
        nth[m["observer"]] += 1
    observers: dict[str, list[int]] = {}
    for _, m in sorted(zip(places, seen, strict=True), key=lambda pair: pair[0]):
        observers.setdefault(_mismatch(m), []).append(m["observer"])
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

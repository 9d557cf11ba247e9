"""The causes that a sweep can name, and the self-test's collectives with it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oddrank.bench.arrival import ENOUGH
from oddrank.bench.late import Late
from oddrank.bench.sizes import size_text
from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold

if TYPE_CHECKING:
    from oddrank.bench.published import Expected
    from oddrank.bench.shortfall import Row

# Which ranks did it together, in words.
_AMONG = {"world": "", "node": " within its node", "across": " across nodes"}


def wrong_values(rounds: Rounds, stage: str, seen: Sequence[Mapping[str, Any]]) -> Finding:
    """Wrong values were seen; by whom says nothing about who caused them."""
    observers = Who("rank", tuple(m["observer"] for m in seen))
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="wrong-values",
        what=f"wrong values in stage {stage}, seen by {observers}; who caused them is unknown",
        stage=stage,
        evidence=mismatch_evidence(seen),
        confidence=Confidence(
            "low", "all ranks have a part in the values: who sees it need not have caused it"
        ),
        next=("run oddrank selftest several times: it compares every rank's own values",),
    )


def not_localised(rounds: Rounds, stage: str, seen: Sequence[Mapping[str, Any]]) -> Finding:
    """Gathered one by one afterwards, nobody's values are wrong in the eyes of all."""
    return replace(
        wrong_values(rounds, stage, seen),
        confidence=Confidence(
            "low", "gathered without arithmetic afterwards, no rank's values were wrong for all"
        ),
        next=(
            "run it again, several times: the fault comes and goes",
            "run it on halves of the ranks: the fault goes with one of them",
        ),
    )


def wrong_contribution(
    rounds: Rounds, stage: str, ranks: Sequence[int], seen: Sequence[Mapping[str, Any]]
) -> Finding:
    """All ranks agree whose own values are wrong when nothing is added to them."""
    who = rounds.who(ranks)
    return Finding(
        condition="broken",
        who=who,
        cause="wrong-contribution",
        what=f"{who} is broken: puts wrong values into collectives in stage {stage}",
        stage=stage,
        evidence=mismatch_evidence(seen),
        confidence=Confidence(
            "high", "gathered without arithmetic, the same values were wrong for every rank"
        ),
        next=("run the self-test on its host alone; if it fails there too, take the device out",),
    )


def late(rounds: Rounds, stage: str, one: Late) -> Finding:
    """Its median arrival lies behind the others' by more than a healthy machine shows, twice."""
    who = rounds.who([one.rank])
    by = f"{one.by / 1e3:.3g} ms" if one.by >= 100 else f"{one.by:.0f} us"
    return Finding(
        condition="late",
        who=who,
        cause="late-arrival",
        what=f"{who} comes {by} late to collectives, in {one.share:.0%} of {one.n} iterations:"
        " the others wait for it",
        stage=stage,
        evidence=(
            Evidence(
                "from leaving one collective to coming to the next", "4-byte all_reduces, median",
                one.others + one.by, "us", one.others,
            ),
            Evidence("comes behind the others", "the same, clocks aligned", one.behind, "us"),
            Evidence("healthy spread (median of last minus first)", "the same", one.spread, "us"),
            Evidence("a rank is called late from there on", "twice the spread", one.line, "us"),
        ),
        confidence=Confidence(
            "high" if rounds.world > 2 else "medium",
            "measured twice, and its median lies outside what the others show"
            if rounds.world > 2
            else "measured twice; of two ranks only one other can be compared with",
        ),
        next=(
            "top -H on its host: who else uses the cores of this rank",
            "oddrank trace where, in training: what it does while the others wait",
        ),
    )  # fmt: skip


def late_once(rounds: Rounds, stage: str, one: Late) -> Finding:
    """Late, and the second measurement did not come: nobody is named by one alone."""
    return replace(
        late(rounds, stage, one),
        condition="unknown",
        who=Who("rank"),
        cause="not-measured-again",
        what=f"{rounds.who([one.rank])} came late once, and could not be measured again",
        confidence=Confidence("low", "seen in one measurement"),
        next=("run it again, with a longer --deadline",),
    )


def late_in_few(rounds: Rounds, stage: str, one: Late) -> Finding:
    """Late in all that there was time for, which is too little to name anybody."""
    return replace(
        late_once(rounds, stage, one),
        cause="too-few-iterations",
        what=f"{rounds.who([one.rank])} seems to come {one.by / 1e3:.3g} ms late, but in {one.n}"
        f" iterations: {ENOUGH} are needed to tell",
        confidence=Confidence("low", "too few iterations fit into the budget"),
        next=("run it again, with a longer --budget",),
    )


def mismatch_evidence(seen: Sequence[Mapping[str, Any]]) -> tuple[Evidence, ...]:
    """Of every observer the first one, before the second of any; who saw the same is one."""
    nth: Counter[int] = Counter()
    places = []
    for m in seen:
        places.append(nth[m["observer"]])
        nth[m["observer"]] += 1
    observers: dict[str, list[int]] = {}
    for _, m in sorted(zip(places, seen, strict=True), key=lambda pair: pair[0]):
        observers.setdefault(_mismatch(m), []).append(m["observer"])
    return tuple(
        Evidence(f"rank{'s' * (len(ranks) > 1)} {fold(ranks)}: {what}", "compared by value")
        for what, ranks in list(observers.items())[:8]
    )


def _mismatch(m: Mapping[str, Any]) -> str:
    return (
        f"{m['case']}{_AMONG[m['among']]}: {m['wrong']} wrong values,"
        f" the first at {m['index']}: expected {m['expected']:g}, got {m['got']:g}"
    )


def below_expected(low: "Sequence[tuple[Row, Expected, float]]", threshold: float) -> Finding:
    """What falls short of the published figure, the worst first. It points at nobody."""
    row, of, share = low[0]
    ranks = Who("rank", tuple(range(row.n)))
    more = f" (and {len(low) - 1} more size{'s' if len(low) > 2 else ''})" if len(low) > 1 else ""
    next_ = ["oddrank bench pairs, launched in the same way: which link or node is slower"]
    if "(n+1)/n" in of.note:
        next_.append("NCCL_DEBUG=INFO on one rank: is NVLS used? Without it a ring reaches less")
    return Finding(
        condition="slow",
        who=ranks,
        cause="below-expected",
        what=f"{row.collective} {row.dtype} of {size_text(row.bytes)} on {ranks} reaches"
        f" {share:.0f}% of what is expected{more}: all of them together, this names no rank",
        evidence=tuple(
            Evidence(
                f"{row.collective} {row.dtype} {size_text(row.bytes)}: {share:.1f}% of"
                f" {of.busbw_GBps:.4g} GB/s ({of.note}; {of.source})",
                "busbw",
                row.busbw_GBps,
                "GB/s",
            )
            for row, of, share in low[:8]
        ),
        confidence=Confidence(
            "medium",
            f"below {100 * threshold:g}% of a figure published for this topology; every rank waits"
            " for the slowest, so that it can't be told from this who that is",
        ),
        next=tuple(next_),
    )


def nothing_published(
    rows: "Sequence[Row]",
    due: "Sequence[Expected | None]",
    judged_from: Sequence[int | None],
    threshold: float,
    where: str,
    *,
    lacks: Collection[str] = (),
) -> Finding:
    """A figure was asked for as a line, and there is none: nothing is slow, nothing is well.

    judged_from: the size from which on each row would be judged, as `shortfall.judged_from`.
    lacks: links that are down, as `published.lacking`.
    """
    whys = Counter(map(_why_not_held, rows, due, judged_from))
    larger = min((size for size in judged_from if size is not None), default=None)
    next_ = [
        "hold it against an earlier run of the same ranks: oddrank bench compare BEFORE.json"
        " NOW.json",
        "or leave out --fail-below: values and late ranks are judged without it",
    ]
    if lacks:
        next_.insert(0, "nvidia-smi nvlink --status, on each host: which links are down")
    if larger is not None:
        next_.insert(0, f"measure what is judged: --sizes {size_text(larger).replace(' ', '')}")
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="nothing-published",
        what=f"--fail-below {100 * threshold:g}% has judged nothing: of {where} no row could be"
        " held against a published figure",
        evidence=(
            *(Evidence(lack, "NVML") for lack in lacks),
            *(
                Evidence(f"{count} of {len(rows)} rows: {why}", "limits.json")
                for why, count in whys.most_common(8)
            ),
        ),
        confidence=Confidence("low", "without a figure fast and slow look the same"),
        next=tuple(next_),
    )


def _why_not_held(row: "Row", of: "Expected | None", judged_from: int | None) -> str:
    if of is not None and of.judged:
        return "wrong values" if row.check == "wrong" else "not measured"
    if judged_from is not None and row.bytes < judged_from:
        return f"{row.collective} is judged from {size_text(judged_from)} on"
    if of is None:
        return f"nothing is published for {row.collective} there"
    if of.physical:
        return f"of {row.collective} a physical limit is known, and not what is usual"
    if of.doubt:
        return f"the figure for {row.collective} does not judge: {of.doubt}"
    return f"the figure for {row.collective} is of a topology that only resembles this one"

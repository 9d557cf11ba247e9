"""The causes that a sweep and the self-test's collectives can name."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from oddrank.bench.case import size_text
from oddrank.bench.data import Expected, Mismatch, Row
from oddrank.bench.sampling import ENOUGH
from oddrank.control.stages import RunState
from oddrank.finding import Confidence, Evidence, Finding, Who, ranks_text
from oddrank.lateness import Late

# Group that ran the case -> end of a sentence.
_AMONG = {"world": "", "node": " within its node", "across": " across nodes"}


def wrong_values(stage: str, seen: Sequence[Mismatch]) -> Finding:
    """Wrong values: the rank that sees them need not have caused them."""
    observers = Who("rank", tuple(m["observer"] for m in seen))
    return Finding(
        cause="wrong-values",
        what=f"wrong values in stage {stage}, seen by {observers}; their origin is unknown",
        stage=stage,
        evidence=mismatch_evidence(seen),
        confidence=Confidence(
            "low",
            "all ranks contribute to a value: the rank that sees it wrong may not have caused it",
        ),
        next=("run oddrank selftest several times: it compares every rank's own values",),
    )


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
    say = wrong_contribution if suspects and sure else not_localised
    return say(run, stage, sorted(suspects), seen)


def not_localised(
    run: RunState, stage: str, suspects: Sequence[int], seen: Sequence[Mismatch]
) -> Finding:
    """Wrong values whose origin gathering every rank's own values does not show.

    suspects: ranks whose own values were wrong for every rank, too many to be named.
    """
    first = wrong_values(stage, seen)
    why, what = "no rank's own values were wrong on all ranks", first.what
    if suspects:
        who = Who("rank", tuple(suspects))
        why = f"the values of {who} were wrong on all ranks: half of the ranks or more"
        what = f"{what}: suspects are {who}, too many of {run.world} to name one"
    return replace(
        first,
        what=what,
        confidence=Confidence("low", f"in a gather without arithmetic afterwards, {why}"),
        next=(
            "run it again, several times: the fault comes and goes",
            "run it on halves of the ranks: the fault goes with one of them",
        ),
    )


def wrong_contribution(
    run: RunState, stage: str, ranks: Sequence[int], seen: Sequence[Mismatch]
) -> Finding:
    """Every rank sees wrong values from these ranks, gathered without arithmetic."""
    who = run.who(ranks)
    return Finding(
        condition="broken",
        who=who,
        cause="wrong-contribution",
        drains_node=True,
        what=f"{who} {who.is_or_are} broken: wrong values in collectives of stage {stage}",
        stage=stage,
        evidence=mismatch_evidence(seen),
        confidence=Confidence(
            "high", "a gather without arithmetic showed these values wrong on all ranks"
        ),
        next=("run the self-test on its host alone; if it fails there too, take the device out",),
    )


def late(run: RunState, one: Late) -> Finding:
    """In both measurements the rank was later than the healthy spread explains."""
    who = run.who([one.rank])
    by = f"{one.by / 1e3:.3g} ms" if one.by >= 100 else f"{one.by:.0f} us"
    return Finding(
        condition="late",
        who=who,
        cause="late-arrival",
        what=f"{who} arrives {by} late at collectives: in {one.share:.0%} of {one.n} iterations the"
        " others wait for it",
        evidence=(
            Evidence(
                "time between leaving a collective and the next", "4-byte all_reduces, median",
                one.others + one.by, "us", one.others,
            ),
            Evidence("arrives after the others by", "the same, clocks aligned", one.behind, "us"),
            Evidence("healthy spread (median of last minus first)", "the same", one.spread, "us"),
            Evidence("smallest delay that counts as late", "twice the spread", one.line, "us"),
        ),
        confidence=Confidence(
            "high" if run.world > 2 else "medium",
            "measured twice, and its median is outside the range of the others"
            if run.world > 2
            else "measured twice, but with only one other rank to compare with",
        ),
        next=(
            "top -H on its host: which processes use the cores of this rank",
            "oddrank trace where, during training: what it does while the others wait",
        ),
    )  # fmt: skip


def late_once(run: RunState, one: Late) -> Finding:
    """Late in the first measurement, with no time for the recheck: names no rank."""
    return replace(
        late(run, one),
        condition="unknown",
        who=Who("rank"),
        cause="not-measured-again",
        what=f"{run.who([one.rank])} arrived late once, and there was no time to measure again",
        confidence=Confidence("low", "seen in one measurement"),
        next=("run it again, with a longer --deadline",),
    )


def late_in_few(run: RunState, one: Late) -> Finding:
    """Late in too few iterations to name a rank."""
    return replace(
        late_once(run, one),
        cause="too-few-iterations",
        what=f"{run.who([one.rank])} seems to arrive {one.by / 1e3:.3g} ms late, but in only"
        f" {one.n} iterations: {ENOUGH} are needed",
        confidence=Confidence("low", "too few iterations fit into the budget"),
        next=("run it again, with a longer --budget",),
    )


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


def below_expected(low: Sequence[tuple[Row, Expected, float]], threshold: float) -> Finding:
    """Rows below the published figure, the worst first. They name no rank."""
    row, of, share = low[0]
    ranks = Who("rank", tuple(range(row.n)))
    more = f" (and {len(low) - 1} more size{'s' if len(low) > 2 else ''})" if len(low) > 1 else ""
    next_ = ["oddrank bench pairs, launched in the same way: which link or node is slower"]
    if "(n+1)/n" in of.note:
        next_.append("NCCL_DEBUG=INFO on one rank: is NVLS used? Without it a ring reaches less")
    return Finding(
        cause="below-expected",
        what=f"{row.collective} {row.dtype} of {size_text(row.bytes)} on {ranks} reaches"
        f" {share:.0f}% of what is expected{more}: which rank or link holds them up is unknown",
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
            f"below {100 * threshold:g}% of a figure published for this topology; all ranks wait"
            " for the slowest, so all look slow",
        ),
        next=tuple(next_),
    )


def nothing_published(
    rows: Sequence[Row],
    due: Sequence[Expected | None],
    judged_from: Sequence[int | None],
    threshold: float,
    where: str,
    *,
    lacks: Collection[str] = (),
) -> Finding:
    """No published figure could judge any row: nothing is known to be slow or healthy.

    judged_from: the smallest size at which each row would be judged (`expected.judged_from`).
    lacks: links that are down (`expected.lacking`).
    """
    whys = Counter(map(_why_not_held, rows, due, judged_from))
    larger = min((size for size in judged_from if size is not None), default=None)
    next_ = [
        "compare with an earlier run of the same ranks: oddrank bench compare BEFORE.json NOW.json",
        "or leave out --fail-below: values and late ranks are judged anyway",
    ]
    if lacks:
        next_.insert(0, "nvidia-smi nvlink --status, on each host: which links are down")
    if larger is not None:
        next_.insert(
            0, f"measure sizes that have a figure: --sizes {size_text(larger).replace(' ', '')}"
        )
    return Finding(
        cause="nothing-published",
        what=f"--fail-below {100 * threshold:g}% judged nothing: no published figure fits any row"
        f" of {where}",
        evidence=(
            *(Evidence(lack, "NVML") for lack in lacks),
            *(
                Evidence(f"{count} of {len(rows)} rows: {why}", "limits.json")
                for why, count in whys.most_common(8)
            ),
        ),
        confidence=Confidence("low", "without a figure, fast and slow look the same"),
        next=tuple(next_),
    )


def _why_not_held(row: Row, of: Expected | None, judged_from: int | None) -> str:
    if of is not None and of.judged:
        return "wrong values" if row.check == "wrong" else "not measured"
    if judged_from is not None and row.bytes < judged_from:
        return f"{row.collective} is judged from {size_text(judged_from)} on"
    if of is None:
        return f"no figure is published for {row.collective} on these devices"
    if of.doubt:
        return f"the figure for {row.collective} is doubtful: {of.doubt}"
    return f"the figure for {row.collective} is from a similar topology only"

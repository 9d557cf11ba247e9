"""The causes that `oddrank run` names itself; all others are triage's."""

from collections.abc import Sequence
from dataclasses import replace

from oddrank.control.stages import RankState
from oddrank.finding import Evidence, Finding, Row, Who, ranks_text
from oddrank.lateness import Late
from oddrank.run import watch
from oddrank.triage import causes
from oddrank.triage.facts import Process, Source
from oddrank.triage.findings import finding
from oddrank.triage.suspects import Point, Suspect

LATE = Row(
    "late-arrival", "late", "{who} is late: it spends {by} more than the others between"
    " collectives, and they wait for it in {share:.0%} of {calls}",
    ("high", "in two reports in a row, and its median is outside the range of the others"),
    ("top -H on its host: which processes use the cores of this rank",
     "oddrank trace where: what it does while the others wait"),
)  # fmt: skip
OF_TWO = replace(
    LATE, sure=("medium", "in two reports in a row, but with only one other rank to compare with")
)


def late(who: Who, one: Late, calls: str, members: int, *, on_device: bool) -> Finding:
    """In two reports in a row the rank was later than the healthy spread explains.

    calls: what was compared, with its number. members: ranks of the group.
    """
    clocks = "times that its device was in the calls" if on_device else "wall clocks"
    usual, spread = one.others / 1e3, "healthy spread (median of last minus first)"
    by = f"{one.by / 1e6:.3g} s" if one.by >= 1e6 else f"{one.by / 1e3:.3g} ms"
    return (OF_TWO if members == 2 else LATE).found(
        who,
        Evidence(
            "time from one collective to the next, without what it waits for others",
            f"median of {calls}", usual + one.by / 1e3, "ms", usual,
        ),
        Evidence("arrives after the others by", clocks, one.behind / 1e3, "ms"),
        Evidence(spread, "the same", one.spread / 1e3, "ms"),
        Evidence("smallest delay that counts as late", "twice the spread", one.line / 1e3, "ms"),
        by=by, share=one.share, calls=calls,
    )  # fmt: skip


def never_joined(states: Sequence[RankState]) -> Finding | None:
    """Names the ranks that never came, of a job in which no rank has come further than waiting."""
    never = tuple(s.rank for s in states if s.contact == "never")
    here = [s.rank for s in states if s.contact != "never"]
    if not never or not here or any(s.progress or watch.has_ended(s) for s in states):
        return None
    seen = Point(f"guards of {ranks_text(here)} are in contact", Source("oddrank run"))
    absent, waiting = tuple(map(Process, never)), tuple(map(Process, here))
    one = Suspect(causes.NEVER_JOINED, absent, "others-joined", 1, (seen,), waiting=waiting)
    return finding(one, ["read the launcher's log: was it started, and does it reach MASTER_ADDR?"])

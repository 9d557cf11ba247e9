"""Compares the hosts' wall clocks, by way of the root's monotonic clock."""

import statistics
import time
from collections.abc import Mapping
from typing import TypeAlias, TypedDict, final

from oddrank.control.stages import Context, RunState, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, Row, Who, number_text
from oddrank.peers import majority
from oddrank.selftest import Options
from oddrank.selftest.nodes import NodeLeaders, by_lowest_rank, leaders_of_several

# Seconds. NTP keeps hosts within 10 ms: a clock that is off by a hundred times that is not
# synchronised. Then log lines change their order, make and NFS take old files for new ones, and
# certificates and tokens are not yet valid.
LIMIT = 1.0
_SYNC_SECONDS = 5.0
_READINGS = 8

_NEXT = ("timedatectl timesync-status || chronyc tracking  (on that host)", "chronyc makestep")


@final
class Reading(TypedDict):
    """epoch_ns: the wall clock when the root's monotonic clock was 0: alike if clocks agree."""

    epoch_ns: int
    error_ns: int


@final
class Unread(TypedDict):
    """unread: why the clock could not be compared."""

    unread: str


# None: another rank measures for its node.
Result: TypeAlias = "Reading | Unread | None"


def _measure(context: Context[str]) -> Result:
    if context.launch.rank not in NodeLeaders.unpack(context.parameters):
        return None
    context.step("compare the clock with the root's")
    try:
        offset, error = context.sync_clock(_SYNC_SECONDS)
    except OddrankError as failure:
        return {"unread": str(failure)[:200]}
    ahead, width = min((_read_both() for _ in range(_READINGS)), key=lambda reading: reading[1])
    return {"epoch_ns": ahead - offset, "error_ns": error + width}


def _read_both() -> tuple[int, int]:
    """Returns (wall clock less monotonic clock, how long reading both took), in ns."""
    before = time.monotonic_ns()
    wall = time.time_ns()
    after = time.monotonic_ns()
    return wall - (before + after) // 2, after - before


def _judge(run: RunState, results: Mapping[int, Result]) -> list[Finding]:
    """Compares each node with the median of the nodes. With two nodes either may be wrong."""
    read = {r: m for r, m in results.items() if m is not None and "epoch_ns" in m}
    if len(read) < 2:
        return []
    nodes = by_lowest_rank(run)
    middle = statistics.median_low(m["epoch_ns"] for m in read.values())
    usual = statistics.median(m["error_ns"] for m in read.values())
    ahead = {rank: (m["epoch_ns"] - middle) / 1e9 for rank, m in read.items()}
    agree = majority(
        {r: abs(ahead[r]) - (m["error_ns"] + usual) / 1e9 <= LIMIT for r, m in read.items()}
    )
    if not (agree.value and agree.is_enough):
        return [disagree({nodes[rank]: ahead[rank] for rank in read})]
    off = agree.deviants
    return [
        wrong_clock(nodes[rank], ahead[rank], read[rank], len(read) - len(off))
        for rank in sorted(off, key=lambda rank: -abs(ahead[rank]))
    ]


# fmt: off
WRONG_CLOCK = Row(
    "wrong-clock", "suspicious", "the wall clock of {who} is {apart} that of most nodes",
    ("high", "measured; {others} other nodes agree with each other"), _NEXT)
DISAGREE = Row(
    "clocks-disagree", "unknown", "the nodes' wall clocks are up to {apart} s apart, and {why}",
    ("low", f"no more than half of the nodes agree within {LIMIT:g} s"), _NEXT)
# fmt: on


def wrong_clock(node: Who, ahead: float, measured: Reading, others: int) -> Finding:
    """One node's wall clock is off, and most nodes agree."""
    apart = f"{number_text(abs(ahead), 3)} s {'ahead of' if ahead > 0 else 'behind'}"
    text = f"CLOCK_REALTIME is {apart} the median of the nodes, known to within"
    text += f" {measured['error_ns'] / 1e6:.2g} ms; {others} nodes agree within {LIMIT:g} s"
    seen = Evidence(text, "min-RTT to the root", round(ahead, 6), "s")
    return WRONG_CLOCK.found(node, seen, apart=apart, others=others)


def disagree(ahead: Mapping[Who, float]) -> Finding:
    """No majority agrees on the time."""
    clocks = sorted(ahead.items(), key=lambda one: one[1])
    apart = clocks[-1][1] - clocks[0][1]
    most = [*clocks[:4], *clocks[4:][-4:]]
    parts = "; ".join(f"{node}: {seconds - clocks[0][1]:+.3f} s" for node, seconds in most)
    why = "with two nodes either may be wrong" if len(clocks) == 2 else "no majority agrees"
    seen = Evidence(parts, "min-RTT to the root", round(apart, 6), "s")
    return DISAGREE.found(Who("node"), seen, apart=number_text(apart, 3), why=why)


def stage(options: Options) -> Stage[str, Result, list[Finding]]:
    return Stage("clock", 20, _measure, _judge, leaders_of_several)

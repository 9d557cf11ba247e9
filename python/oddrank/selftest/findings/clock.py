"""The causes of the stage clock: one function each."""

from collections.abc import Mapping
from typing import Any

from oddrank.finding import Confidence, Evidence, Finding, Who

_NEXT = ("timedatectl timesync-status || chronyc tracking  (on that host)", "chronyc makestep")


def wrong_clock(
    node: Who, ahead: float, measured: Mapping[str, Any], others: int, limit: float
) -> Finding:
    """One node's wall clock, where most agree."""
    error = measured["error_ns"] / 1e9
    return Finding(
        condition="suspicious",
        who=node,
        cause="wrong-clock",
        what=f"the wall clock of {node} is {_apart(ahead)} that of most nodes",
        stage="clock",
        evidence=(
            Evidence(
                f"CLOCK_REALTIME is {_apart(ahead)} the median of the nodes, known to within"
                f" {error * 1e3:.2g} ms; {others} nodes agree within {limit:g} s",
                "min-RTT to the root",
                value=round(ahead, 6),
                unit="s",
            ),
            *_kernels_word(measured.get("kernel")),
        ),
        confidence=Confidence("high", f"measured; {others} other nodes agree with each other"),
        next=_NEXT,
    )


def disagree(ahead: Mapping[Who, float], limit: float) -> Finding:
    """No majority: nobody knows who is right."""
    clocks = sorted(ahead.items(), key=lambda one: one[1])
    apart = clocks[-1][1] - clocks[0][1]
    most = [*clocks[:4], *clocks[4:][-4:]]
    parts = "; ".join(f"{node}: {seconds - clocks[0][1]:+.3f} s" for node, seconds in most)
    two = len(clocks) == 2
    return Finding(
        condition="unknown",
        who=Who("node"),
        cause="clocks-disagree",
        what=f"the nodes' wall clocks are up to {apart:.3g} s apart, and "
        + ("of two nobody knows which one is wrong" if two else "no majority agrees"),
        stage="clock",
        evidence=(Evidence(parts, "min-RTT to the root", value=round(apart, 6), unit="s"),),
        confidence=Confidence("low", f"no more than half of the nodes agree within {limit:g} s"),
        next=_NEXT,
    )


def _apart(ahead: float) -> str:
    return f"{abs(ahead):.3g} s {'ahead of' if ahead > 0 else 'behind'}"


def _kernels_word(kernel: Mapping[str, Any] | None) -> tuple[Evidence, ...]:
    if not kernel:
        return ()
    text = "synchronised" if kernel["synchronised"] else "not synchronised (STA_UNSYNC)"
    rate = f"the kernel calls it {text}, and corrects it by {kernel['rate_ppm']:g} ppm"
    return (Evidence(rate, "adjtimex"),)

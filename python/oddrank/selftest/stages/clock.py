"""Whether the hosts' wall clocks agree: the root's monotonic clock is what they are compared by."""

import ctypes
import statistics
import struct
import time
from typing import Any

from oddrank.control.stages import Context, Rounds, Skip, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Finding
from oddrank.selftest.choice import Options
from oddrank.selftest.findings import clock as findings
from oddrank.selftest.findings.names import by_lowest_rank
from oddrank.selftest.one_a_node import OneANode, hosts_of

# Seconds. NTP keeps hosts within 10 ms: what is a hundred times further off is not synchronised.
# From there on lines in logs change their order, make and NFS take old files for new ones, and
# certificates and tokens are not yet valid.
LIMIT = 1.0
_SYNC_SECONDS = 5.0
_READINGS = 8
_STA_UNSYNC = 0x0040


def _plan(rounds: Rounds) -> str | Skip:
    return OneANode.of(rounds).pack() if hosts_of(rounds) > 1 else Skip("one host")


def _measure(context: Context) -> dict[str, Any] | None:
    if context.launch.rank not in OneANode.unpack(context.parameters):
        return None
    context.step("compare the clock with the root's")
    try:
        offset, error = context.sync_clock(_SYNC_SECONDS)
    except OddrankError as failure:
        return {"unread": str(failure)[:200]}
    ahead, width = min((_read_both() for _ in range(_READINGS)), key=lambda reading: reading[1])
    return {
        # The wall clock when the root's monotonic one was 0: of clocks that agree it is the same.
        "epoch_ns": ahead - offset,
        "error_ns": error + width,
        "kernel": _kernels_word(),
    }


def _read_both() -> tuple[int, int]:
    """(How far the wall clock is ahead of the monotonic one, how long reading both took), in ns."""
    before = time.monotonic_ns()
    wall = time.time_ns()
    after = time.monotonic_ns()
    return wall - (before + after) // 2, after - before


def _kernels_word() -> dict[str, Any] | None:
    """What the kernel knows of its clock's discipline; None where a container forbids to ask."""
    timex = ctypes.create_string_buffer(512)  # 208 bytes, and room for what may come
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        return None
    _, _, frequency, most, estimate, status = struct.unpack_from("@Illlli", timex)
    return {
        "synchronised": not status & _STA_UNSYNC,
        "rate_ppm": round(frequency / 65536, 3),
        "error_us": estimate,
        "most_us": most,
    }


def _judge(rounds: Rounds) -> list[Finding]:
    """One vote a node. Of two nobody knows which is wrong."""
    read = {r: m for r, m in rounds.of("clock").items() if m is not None and "epoch_ns" in m}
    if len(read) < 2:
        return []
    nodes = by_lowest_rank(rounds)
    middle = statistics.median_low(m["epoch_ns"] for m in read.values())
    usual = statistics.median(m["error_ns"] for m in read.values())
    ahead = {rank: (m["epoch_ns"] - middle) / 1e9 for rank, m in read.items()}
    off = [
        rank for rank, m in read.items() if abs(ahead[rank]) - (m["error_ns"] + usual) / 1e9 > LIMIT
    ]
    if not off:
        return []
    if len(read) == 2 or 2 * len(off) >= len(read):
        return [findings.disagree({nodes[rank]: ahead[rank] for rank in read}, LIMIT)]
    return [
        findings.wrong_clock(nodes[rank], ahead[rank], read[rank], len(read) - len(off), LIMIT)
        for rank in sorted(off, key=lambda rank: -abs(ahead[rank]))
    ]


def stage(options: Options) -> Stage:
    return Stage("clock", 20, _measure, _judge, _plan)

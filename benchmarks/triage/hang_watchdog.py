"""Writes the lines that NCCL's watchdog would have written: gloo has none.

The facts are true: each rank's open operations, their sequence numbers and sizes are its flight
recorder's at that moment. The wording is torch's of 2.9 to 2.13, or of 2.6.
"""

import ast
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# An operation of gloo -> NCCL's name for it; its barrier is an all_reduce of one number.
_TYPES = {
    "all_reduce": "ALLREDUCE",
    "all_gather": "ALLGATHER",
    "broadcast": "BROADCAST",
    "gather": "GATHER",
    "barrier": "ALLREDUCE",
}
_TIMEOUT_MS = 600000
_ADVICE = (
    "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across"
    " ranks, the order of collectives is not same for all ranks or the scheduled collective, for"
    " some reason, didn't run. Additionally, this can be caused by GIL deadlock or other reasons"
    " such as network errors or bugs in the communications library (e.g. NCCL), etc. "
)


def lines(ranks: Mapping[int, Mapping[str, Any]], *, newest: bool) -> list[str]:
    """Returns the lines of all ranks that gave a dump, in the order of time; none if none waits.

    ranks: rank -> its dump, its groups, the send or recv in which it is, and the time.
    """
    waits = {rank: _open(one) for rank, one in ranks.items()}
    first = next((rank for rank in sorted(waits) if waits[rank]), None)
    if first is None:
        return []
    written: list[tuple[float, str]] = []
    for rank, one in ranks.items():
        for number, wait in enumerate(waits[rank]):
            at = one["time"] + 0.001 * number + 0.0001 * rank
            written += _timeout(rank, one, wait, at, newest)
        if not waits[rank]:
            written += _observed(rank, one, first)
    return [text for _, text in sorted(written)]


@dataclass
class _Wait:
    """The oldest open operation of a group. enqueued: the number of the newest one."""

    group: str
    seq: int
    op: str
    numel: int
    enqueued: int


def _open(one: Mapping[str, Any]) -> list[_Wait]:
    """Returns the rank's open operations, one in each group."""
    found: dict[str, _Wait] = {}
    for entry in one["dump"]["entries"]:
        name, seq = entry["process_group"][0], entry["collective_seq_id"]
        if name in found:
            found[name].enqueued = seq
        elif not entry["retired"]:
            op = entry["profiling_name"].partition(":")[2]
            numel = sum(_product(sizes) for sizes in entry["input_sizes"]) or 1
            found[name] = _Wait(name, seq, _TYPES.get(op, op.upper()), numel, seq)
    pair = one["pair"]
    if pair:
        name = next(name for name, row in one["groups"].items() if row["desc"] == "pipeline")
        found[name] = _Wait(name, pair["seq"], pair["op"], pair["numel"], pair["seq"])
    return list(found.values())


def _timeout(
    rank: int, one: Mapping[str, Any], wait: _Wait, at: float, newest: bool
) -> list[tuple[float, str]]:
    own = _rank_in(one, wait.group, rank)
    group, seq, numel = _group(one, wait.group, own), wait.seq, wait.numel
    enqueued, completed = wait.enqueued, seq - 1
    ran = _TIMEOUT_MS + 2 + rank
    caught = (
        f"[Rank {own}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq},"
        f" OpType={wait.op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={_TIMEOUT_MS}) ran for"
        f" {ran} milliseconds before timing out."
    )
    if newest:
        status = (
            f"{group}  failure detected by watchdog at work sequence id: {seq} PG status: last"
            f" enqueued work: {enqueued}, last completed work: {completed}"
        )
        places = (683, 2241)
    else:
        status = (
            f"{group} Exception (either an error or timeout) detected by watchdog at work: {seq},"
            f" last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
        )
        places = (616, 1785)
    return [
        (at, _line(rank, at, places[0], caught)),
        (at + 1e-4, _line(rank, at + 1e-4, places[1], status)),
    ]


def _observed(rank: int, one: Mapping[str, Any], first: int) -> list[tuple[float, str]]:
    """Returns the lines of a rank that waits in no operation: its monitor dumps with the others."""
    name = next(name for name, row in one["groups"].items() if row["desc"] == "default_pg")
    status = one["dump"]["pg_status"].get(name, {})
    enqueued = status.get("last_enqueued_collective", -1)
    completed = status.get("last_completed_collective", -1)
    group, at = _group(one, name, _rank_in(one, name, rank)), one["time"] + 0.05 + 0.0001 * rank
    observed = f"{group} Observed flight recorder dump signal from another rank via TCPStore."
    received = (
        f"{group} Received a dump signal due to a collective timeout from  rank {first} and we will"
        f" try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed"
        f" NCCL work: {completed}.{_ADVICE}"
    )
    return [(at, _line(rank, at, 1794, observed)), (at + 1e-4, _line(rank, at, 1858, received))]


def _line(rank: int, at: float, place: int, text: str) -> str:
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1e9):09}"
    return f"[rank{rank}]:[E{stamp.lstrip('0')} ProcessGroupNCCL.cpp:{place}] {text}\n"


def _group(one: Mapping[str, Any], name: str, own: int) -> str:
    desc = one["groups"][name]["desc"]
    return f"[PG ID {list(one['groups']).index(name)} PG GUID {name}({desc}) Rank {own}]"


def _rank_in(one: Mapping[str, Any], name: str, rank: int) -> int:
    ranks: list[int] = ast.literal_eval(one["groups"][name]["ranks"])
    return ranks.index(rank)


def _product(sizes: list[int]) -> int:
    numel = 1
    for size in sizes:
        numel *= size
    return numel

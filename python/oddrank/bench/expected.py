"""Looks up the bandwidth that a collective should reach, and finds rows below it. Pure.

limits.json has the figures, each with its source: of GPUs that NVLink or one host joins. Without a
figure for this topology and number of GPUs there is no expectation.

If the switch adds up (NVLS), busbw is not the rate on the wire: each link carries (n + 1) / n of
the buffer, wire = algbw (n + 1) / n, and busbw = wire * 2 (n - 1) / (n + 1) may exceed the link's
rate (NVIDIA/nccl-tests, pull request 239).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from oddrank import gpus
from oddrank.bench import findings
from oddrank.bench.case import Case
from oddrank.bench.data import Expected, Row
from oddrank.bench.topology import Facts
from oddrank.finding import Finding
from oddrank.gpus import Gpu

_FROM = 1 << 30  # default of a rule: smallest size with an expected value,
_VERDICT_FROM = 1 << 32  # and smallest size that is judged
# Smallest size that is judged by a curve that was not measured with NCCL itself: below it a
# framework's cost hides in the curve, and NCCL at twice its usual time would still reach it.
_VERDICT_FROM_OTHERS = 64 << 20
_NVLS_DTYPES = {"float32", "float16", "bfloat16"}
_REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
_FIRST_NVLS = (2, 17)  # first NCCL version with NVLS


def expected(facts: Facts, case: Case) -> Expected | None:
    """Returns the expectation; None if the table has none."""
    gpu = gpus.product(facts.gpu)
    if gpu is None or _is_crippled(facts, gpu):
        return None
    if case.collective in _REDUCING and (case.dtype not in _NVLS_DTYPES or case.op != "sum"):
        return None
    rules = (
        rule
        for rule in figures()["within_node"]
        if (rule["gpu"], rule["collective"]) == (gpu.bandwidths or gpu.name, case.collective)
        and facts.n in rule["n"]
        and (rule["algorithm"] != "NVLS" or _has_nvls(facts))
        and (rule["algorithm"] != "ring" or facts.ring is not False)
    )
    rule = next(rules, None)  # NCCL prefers NVLS, and the table lists it first
    if rule is None or case.bytes < rule.get("from", _FROM):
        return None
    link = rule.get("link_GBps", gpu.link)
    busbw = rule["share"] * link
    note = f"{rule['algorithm']}, {gpu.name} x {facts.n}"
    if rule["algorithm"] == "NVLS":
        busbw *= 2 * (facts.n - 1) / (facts.n + 1)
    first = rule.get("verdict_from", _VERDICT_FROM)
    if "curve" in rule:
        curve = figures()["curves"][rule["curve"]]
        busbw = _at_size(curve["GBps"], case.bytes)
        first = first if curve["native"] else max(first, _VERDICT_FROM_OTHERS)
    if rule["algorithm"] == "NVLS":
        wire = nvls_wire(busbw, facts.n)
        note += (
            f": the switch adds up, so each link carries algbw (n+1)/n = {wire:.0f} GB/s of"
            f" {link:g}, and busbw may exceed that"
        )
    return Expected(busbw, rule["source"], note, judged=case.bytes >= first)


def nvls_wire(busbw: float, n: int) -> float:
    """Returns the rate on each GPU's link if the switch reduces an all_reduce of n ranks (NVLS)."""
    return busbw * (n + 1) / (2 * (n - 1))


def _at_size(points: Sequence[tuple[int, float]], size: int) -> float:
    """Interpolates a curve on log axes."""
    if size >= points[-1][0]:
        return float(points[-1][1])
    at = next(i for i, (bytes_, _) in enumerate(points) if bytes_ > size)
    (x0, y0), (x1, y1) = points[at - 1], points[at]
    share = math.log(size / x0) / math.log(x1 / x0)
    return float(y0 * (y1 / y0) ** share)


def _has_nvls(facts: Facts) -> bool:
    """Returns whether NCCL can reduce in the switch. Unknown is no: a ring is slower."""
    version = re.match(r"(\d+)\.(\d+)", facts.nccl or "")
    old = version is not None and (int(version[1]), int(version[2])) < _FIRST_NVLS
    return facts.nvls is True and not old


def of_gate(
    facts: Facts | None, rows: Sequence[tuple[Case, Row]], threshold: float, where: str
) -> list[Finding]:
    """Returns the finding of --fail-below: rows below `threshold` (0.9 is 90 %), the worst first,
    or that no row could be judged.

    It names no rank: in a slow collective all ranks are slow. where: the ranks that measured.
    """
    due = [(row, expected(facts, case) if facts else None) for case, row in rows]
    held = [
        (row, of, 100 * row.busbw_GBps / of.busbw_GBps)
        for row, of in due
        if of is not None and of.judged and row.check == "ok" and row.busbw_GBps is not None
    ]
    if not held:
        sizes = [size for case, _ in rows if (size := judged_from(facts, case)) is not None]
        return [findings.nothing_published(threshold, where, sizes, _lacking(facts))]
    low = sorted((one for one in held if one[2] < 100 * threshold), key=lambda one: one[2])
    return [findings.below_expected(low, threshold)] if low else []


def judged_from(facts: Facts | None, case: Case) -> int | None:
    """Returns the smallest power of two (bytes) at which such a case is judged; None: never."""
    if facts is None:
        return None
    due = (
        (1 << power, expected(facts, replace(case, bytes=1 << power))) for power in range(20, 40)
    )
    return next((size for size, of in due if of is not None and of.judged), None)


@cache
def figures() -> Mapping[str, Any]:
    text = Path(__file__).with_name("limits.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def _is_crippled(facts: Facts, gpu: Gpu) -> bool:
    """Returns whether the GPU has other than the product's number of links: another topology."""
    return None not in (facts.links, gpu.links) and facts.links != gpu.links


def _lacking(facts: Facts | None) -> str:
    """Returns why the table does not apply to a GPU that is in it; "" if it does."""
    gpu = gpus.product(facts.gpu) if facts else None
    if facts is None or gpu is None or not _is_crippled(facts, gpu):
        return ""
    return f"{facts.links} of {gpu.links} NVLinks of a GPU are active"

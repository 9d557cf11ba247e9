"""Looks up the bandwidth that a collective should reach, and finds rows below it. Pure.

limits.json has the figures, each with its source. Without a figure for this topology and number of
GPUs there is no expectation.

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
from oddrank.bench.data import Expected, Row, percent
from oddrank.bench.topology import Facts
from oddrank.finding import Finding
from oddrank.gpus import Gpu

_FROM = 1 << 30  # default of a rule: smallest size with an expected value,
_VERDICT_FROM = 1 << 32  # and smallest size that is judged
# Smallest size that is judged by a curve that was not measured with NCCL itself: below it a
# framework's cost hides in the curve, and NCCL at twice its usual time would still reach it.
_VERDICT_FROM_OTHERS = 64 << 20
SMALLEST = 1 << 20
"""Bytes. Below them latency counts and no bandwidth is expected."""
_NVLS_DTYPES = {"float32", "float16", "bfloat16"}
_REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
_FIRST_NVLS = (2, 17)  # first NCCL version with NVLS


def expected(facts: Facts, case: Case) -> Expected | None:
    """Returns the expectation; None if the table has none."""
    if case.bytes < SMALLEST or case.collective == "barrier" or facts.n == 1:
        return None
    gpu = gpus.product(facts.gpu)
    if case.collective in _REDUCING and (case.dtype not in _NVLS_DTYPES or case.op != "sum"):
        return None
    return (
        _of_system(facts, case, gpu)
        or _in_node(facts, case, gpu)
        or _over_pcie(facts, case)
        or between_nodes(facts, case, gpu)
    )


def nvls_wire(busbw: float, n: int) -> float:
    """Returns the rate on each GPU's link if the switch reduces an all_reduce of n ranks (NVLS)."""
    return busbw * (n + 1) / (2 * (n - 1))


def _in_node(facts: Facts, case: Case, gpu: Gpu | None) -> Expected | None:
    """Returns the figure within a node, or within one NVLink domain of several nodes."""
    if gpu is None or not facts.together or _is_crippled(facts, gpu):
        return None
    rules = [
        rule
        for rule in figures()["within_node"]
        if (rule["gpu"], rule["collective"]) == (gpu.bandwidths or gpu.name, case.collective)
        and facts.n in rule["n"]
        and (rule["algorithm"] != "NVLS" or _has_nvls(facts))
        and (rule["algorithm"] != "ring" or facts.ring is not False)
    ]
    # NCCL prefers NVLS, and the table lists it first.
    if not rules:
        return None
    rule = rules[0]
    link = rule.get("link_GBps", gpu.link)
    busbw = rule["share"] * link
    note = f"{rule['algorithm']}, {gpu.name} x {facts.n}"
    if rule["algorithm"] == "NVLS":
        busbw *= 2 * (facts.n - 1) / (facts.n + 1)
    busbw = _at_size(rule, case.bytes, busbw)
    if rule["algorithm"] == "NVLS":
        wire = nvls_wire(busbw, facts.n)
        note += (
            f": the switch adds up, so each link carries algbw (n+1)/n = {wire:.0f} GB/s of"
            f" {link:g}, and busbw may exceed that"
        )
    return _from_rule(rule, case, busbw, note)


def _at_size(rule: Mapping[str, Any], size: int, largest: float) -> float:
    """Interpolates the rule's curve on log axes; returns `largest` if the rule has no curve."""
    if "curve" not in rule:
        return largest
    points = figures()["curves"][rule["curve"]]["GBps"]
    if size >= points[-1][0]:
        return float(points[-1][1])
    at = next(i for i, (bytes_, _) in enumerate(points) if bytes_ > size)
    (x0, y0), (x1, y1) = points[at - 1], points[at]
    share = math.log(size / x0) / math.log(x1 / x0)
    return float(y0 * (y1 / y0) ** share)


def _of_system(facts: Facts, case: Case, gpu: Gpu | None) -> Expected | None:
    """Returns the figure published for a whole installation of this size."""
    for system in figures()["systems"]:
        same = (system["n"], system["nodes"]) == (facts.n, facts.nodes)
        if same and (system["gpu"], system["collective"]) == (gpu and gpu.name, case.collective):
            return _from_rule(system, case, system["GBps"], f"{system['gpu']} x {facts.n}")
    return None


def _over_pcie(facts: Facts, case: Case) -> Expected | None:
    if facts.link != "pcie" or facts.nodes > 1 or case.collective != "all_reduce":
        return None
    rule = _pcie_rule(facts)
    if rule is None:
        return None
    return _from_rule(rule, case, _reached(rule), f"PCIe {facts.pcie}", judged=False)


def _has_nvls(facts: Facts) -> bool:
    """Returns whether NCCL can reduce in the switch. Unknown is no: a ring is slower."""
    version = re.match(r"(\d+)\.(\d+)", facts.nccl or "")
    old = version is not None and (int(version[1]), int(version[2])) < _FIRST_NVLS
    return facts.nvls is True and not old


def between_nodes(facts: Facts, case: Case, gpu: Gpu | None) -> Expected | None:
    """Returns the figure between nodes: a ring uses all NICs of a node, all_to_all one per GPU."""
    if facts.together or not facts.nics:
        return None
    fabric = facts.fabric or "rdma"
    for rule in figures()["between_nodes"]:
        if (rule["collective"], rule["fabric"]) != (case.collective, fabric):
            continue
        rate = sum(facts.nics) / 8
        busbw = rule["share"] * rate / (facts.per_node if rule.get("per_gpu") else 1)
        note = f"{len(facts.nics)} NICs of a node, {rate:g} GB/s; trees and SHARP may exceed it"
        doubt = _doubt(facts, rule["nodes"], _may_be_slower_inside(facts, case, gpu, busbw))
        if doubt:
            note += f", and {doubt}"
        known = facts.fabric is not None and not doubt
        found = _from_rule(rule, case, busbw, note, judged=known)
        return replace(found, doubt=doubt) if found else None
    return None


def _may_be_slower_inside(facts: Facts, case: Case, gpu: Gpu | None, busbw: float) -> bool:
    """Returns whether PCIe, or the links inside a node, may be slower than the NICs."""
    rule = _pcie_rule(facts)
    of_a_gpu = max(*facts.nics, sum(facts.nics) / facts.per_node) / 8
    if rule and of_a_gpu > rule["link_GBps"]:
        return True
    if facts.per_node == 1 or (gpu and gpu.links and not _is_crippled(facts, gpu)):
        return False
    return not rule or case.collective != "all_reduce" or _reached(rule) < busbw


def _doubt(facts: Facts, nodes: Sequence[int], slow_inside: bool) -> str:
    """Returns why the figure for all NICs together may not apply; "" if it does.

    Storage has its own NICs, and the kernel does not say which.
    """
    if facts.nodes not in nodes:
        return f"{facts.nodes} nodes are not in the table"
    if facts.uneven:
        return "nodes differ in the ports that are active: is one down?"
    if len(facts.nics) > facts.per_node:
        which = f"which of {len(facts.nics)} ports serve {facts.per_node} GPUs of a node"
    elif len(set(facts.nics)) > 1:
        which = "which ports of a node serve, for they have different rates,"
    elif slow_inside:
        return "what joins the GPUs of a node to each other or to its NICs may be slower than these"
    else:
        return ""
    return f"{which} is not known: NCCL_IB_HCA can name them"


def held(
    rows: Sequence[Row], expectations: Sequence[Expected | None]
) -> list[tuple[Row, Expected, float]]:
    """Returns the rows that may be judged, each with its expectation and percentage."""
    found = []
    for row, of in zip(rows, expectations, strict=True):
        share = percent(row, of)
        if of is not None and of.judged and row.check == "ok" and share is not None:
            found.append((row, of, share))
    return found


def judged_from(facts: Facts, case: Case) -> int | None:
    """Returns the smallest power of two (bytes) at which such a case is judged; None: never."""
    sizes = (1 << power for power in range(SMALLEST.bit_length() - 1, 40))
    due = ((size, expected(facts, replace(case, bytes=size))) for size in sizes)
    return next((size for size, of in due if of is not None and of.judged), None)


def shortfalls(
    rows: Sequence[Row], expectations: Sequence[Expected | None], threshold: float
) -> list[Finding]:
    """Returns one finding if any row that may be judged is below `threshold` (0.9 is 90 %).

    It names no rank: in a slow collective all ranks are slow.
    """
    low = [each for each in held(rows, expectations) if each[2] < 100 * threshold]
    low.sort(key=lambda each: each[2])
    return [findings.below_expected(low, threshold)] if low else []


@cache
def figures() -> Mapping[str, Any]:
    text = Path(__file__).with_name("limits.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def _is_crippled(facts: Facts, gpu: Gpu) -> bool:
    """Returns whether the GPU has other than the product's number of links: another topology."""
    if facts.link == "pcie":
        return gpu.links is not None
    return None not in (facts.links, gpu.links) and facts.links != gpu.links


def lacking(facts: Facts) -> str:
    """Returns why the table does not apply to a GPU that is in it; "" if it does."""
    gpu = gpus.product(facts.gpu)
    if gpu is None or not _is_crippled(facts, gpu):
        return ""
    return f"{facts.links or 0} of {gpu.links} NVLinks of a GPU are active"


def _from_rule(
    rule: Mapping[str, Any], case: Case, busbw: float, note: str, judged: bool = True
) -> Expected | None:
    """Returns a rule's figure, judged from the rule's `verdict_from` on; None below its `from`."""
    if case.bytes < rule.get("from", _FROM):
        return None
    first = rule.get("verdict_from", _VERDICT_FROM)
    curve = figures()["curves"].get(rule.get("curve"))
    if first is not None and curve is not None and not curve["native"]:
        first = max(first, _VERDICT_FROM_OTHERS)
    judged = judged and first is not None and case.bytes >= first
    return Expected(busbw, rule["source"], note, judged=judged)


def _pcie_rule(facts: Facts) -> Mapping[str, Any] | None:
    """Returns the rule for an all_reduce over PCIe within one node; None if unknown."""
    return next((rule for rule in figures()["pcie"] if rule["generation"] == facts.pcie), None)


def _reached(rule: Mapping[str, Any]) -> float:
    """Returns the busbw that the rule expects: its share of the link's rate."""
    return float(rule["share"] * rule["link_GBps"])

"""What a collective should reach on this topology: published figures and physical limits.

Pure. The figures are limits.json's, each with its source. Where neither the number of GPUs nor the
topology is in the table there is no expectation, and a physical limit is shown but never judged: no
transport reaches it.

busbw is no rate of a wire where the switch adds up (NVLS): then each link carries (n + 1) / n of
the buffer, wire = algbw (n + 1) / n, and busbw = wire * 2 (n - 1) / (n + 1) may exceed the link's
rate (NVIDIA/nccl-tests, pull request 239).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from oddrank.bench.case import Case
from oddrank.bench.facts import Facts
from oddrank.bench.windows import CACHES

SMALLEST = 1 << 20
"""Below it latency counts and no bandwidth is expected."""
_FROM = 1 << 30  # where a rule does not say otherwise: sizes with an expected value,
_VERDICT_FROM = 1 << 32  # and those that are judged
_NVLS_DTYPES = {"float32", "float16", "bfloat16"}
_REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
_FIRST_NVLS = (2, 17)  # the NCCL that has it


@dataclass(frozen=True)
class Expected:
    """What to expect, in 1e9 bytes a second; algbw where busbw is not defined (one rank)."""

    busbw_GBps: float | None
    source: str
    note: str = ""
    algbw_GBps: float | None = None
    judged: bool = False
    """Whether falling short of it is a finding."""
    physical: bool = False
    """A limit that nothing exceeds, and not what is usual."""
    doubt: str = ""
    """Why the figure, though it is of such a topology, judges nothing here."""


def expected(facts: Facts, case: Case, footprint: int | None = None) -> Expected | None:
    """None where neither the table nor physics says anything.

    footprint: bytes that its runs go over, which a cache serves if they are few; None: not known.
    """
    if case.bytes < SMALLEST or case.collective == "barrier":
        return None
    if facts.gpu is None:
        return _on_cpu(facts, case)
    if "nccl" not in facts.backend:
        return None
    gpu = _gpu(facts.gpu)
    if facts.n == 1:
        return _in_one_gpu(gpu, case, footprint)
    if case.collective in _REDUCING and (case.dtype not in _NVLS_DTYPES or case.op != "sum"):
        return None
    return (
        _of_system(facts, case, gpu)
        or _in_node(facts, case, gpu)
        or _over_pcie(facts, case)
        or _between_nodes(facts, case, gpu)
    )


def nvls_wire(busbw: float, n: int) -> float:
    """What each GPU's link carries when an all_reduce of n ranks runs through the switch."""
    return busbw * (n + 1) / (2 * (n - 1))


@cache
def limits() -> Mapping[str, Any]:
    """limits.json."""
    text = Path(__file__).with_name("limits.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def _gpu(name: str) -> Mapping[str, Any] | None:
    """A product by its whole name: an H100 PCIe, an H200 NVL or a MIG slice is no H100 or H200."""
    rows = (gpu for gpu in limits()["gpus"] if re.fullmatch(gpu["match"], name.strip()))
    return next(rows, None)


def _in_node(facts: Facts, case: Case, gpu: Mapping[str, Any] | None) -> Expected | None:
    """Also within one NVLink domain of several nodes."""
    if gpu is None or not facts.together or _is_crippled(facts, gpu):
        return None
    rules = [
        rule
        for rule in limits()["within_node"]
        if (rule["gpu"], rule["collective"]) == (gpu["name"], case.collective)
        and facts.n in rule["n"]
        and (rule["algorithm"] != "NVLS" or _has_nvls(facts))
        and (rule["algorithm"] != "ring" or facts.ring is not False)
    ]
    # NCCL takes NVLS where it can, and the table has it first.
    if not rules:
        return _link_limit(case, gpu)
    rule = rules[0]
    link = rule.get("link_GBps", gpu["link_GBps"])
    busbw = rule["share"] * link
    note = f"{rule['algorithm']}, {gpu['name']} x {facts.n}"
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
    """Along the curve, straight between its points on log axes; without one what is reached."""
    if "curve" not in rule:
        return largest
    points = limits()["curves"][rule["curve"]]["GBps"]
    if size >= points[-1][0]:
        return float(points[-1][1])
    at = next(i for i, (bytes_, _) in enumerate(points) if bytes_ > size)
    (x0, y0), (x1, y1) = points[at - 1], points[at]
    share = math.log(size / x0) / math.log(x1 / x0)
    return float(y0 * (y1 / y0) ** share)


def _from_rule(
    rule: Mapping[str, Any], case: Case, busbw: float, note: str, judged: bool = True
) -> Expected | None:
    if case.bytes < rule.get("from", _FROM):
        return None
    first = rule.get("verdict_from", _VERDICT_FROM)
    judged = judged and first is not None and case.bytes >= first
    return Expected(busbw, rule["source"], note, judged=judged)


def _of_system(facts: Facts, case: Case, gpu: Mapping[str, Any] | None) -> Expected | None:
    """Whole installations of which one figure is published."""
    for system in limits()["systems"]:
        same = (system["n"], system["nodes"]) == (facts.n, facts.nodes)
        if same and (system["gpu"], system["collective"]) == (gpu and gpu["name"], case.collective):
            return _from_rule(system, case, system["GBps"], f"{system['gpu']} x {facts.n}")
    return None


def _over_pcie(facts: Facts, case: Case) -> Expected | None:
    if facts.link != "pcie" or facts.nodes > 1 or case.collective != "all_reduce":
        return None
    rule = _pcie_rule(facts)
    if rule is None:
        return None
    return _from_rule(rule, case, _reached(rule), f"PCIe {facts.pcie}", judged=False)


def _pcie_rule(facts: Facts) -> Mapping[str, Any] | None:
    return next((rule for rule in limits()["pcie"] if rule["generation"] == facts.pcie), None)


def _reached(rule: Mapping[str, Any]) -> float:
    return float(rule["share"] * rule["link_GBps"])


def _between_nodes(facts: Facts, case: Case, gpu: Mapping[str, Any] | None) -> Expected | None:
    """All NICs of a node together carry what a ring moves; of all_to_all each GPU has its own."""
    if facts.together or not facts.nics:
        return None
    fabric = facts.fabric or "rdma"
    for rule in limits()["between_nodes"]:
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


def _may_be_slower_inside(
    facts: Facts, case: Case, gpu: Mapping[str, Any] | None, busbw: float
) -> bool:
    """Whether a GPU's PCIe, or what joins a node's GPUs, is not known to be enough for the NICs."""
    rule = _pcie_rule(facts)
    of_a_gpu = max(*facts.nics, sum(facts.nics) / facts.per_node) / 8
    if rule and of_a_gpu > rule["link_GBps"]:
        return True
    if facts.per_node == 1 or (gpu and gpu["links"] and not _is_crippled(facts, gpu)):
        return False
    return not rule or case.collective != "all_reduce" or _reached(rule) < busbw


def _doubt(facts: Facts, nodes: Sequence[int], slow_inside: bool) -> str:
    """Why all NICs together need not be what is usual; empty where nothing speaks against it.

    Storage has NICs of its own, and the kernel does not say which they are.
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


def _on_cpu(facts: Facts, case: Case) -> Expected | None:
    """gloo's ring crosses each NIC once: busbw is at most its line rate. On one host: nothing."""
    if facts.nodes == 1 or not facts.nics or case.collective != "all_reduce":
        return None
    rate = max(facts.nics) / 8
    return Expected(
        rate,
        "line rate of the NIC",
        f"a physical limit ({max(facts.nics):g} Gb/s), which TCP does not reach",
        physical=True,
    )


def _in_one_gpu(
    gpu: Mapping[str, Any] | None, case: Case, footprint: int | None
) -> Expected | None:
    """One rank copies within its memory: every byte is read and written. In place: nothing."""
    if gpu is None or gpu["memory_GBps"] is None or case.in_place:
        return None
    limit = Expected(
        None,
        "specification of the memory",
        "a physical limit: every byte is read and written once",
        algbw_GBps=gpu["memory_GBps"] / 2,
        physical=True,
    )
    if footprint is None or footprint >= CACHES:
        return limit
    note = f"a cache may serve all of the {footprint / (1 << 20):.0f} MiB that the runs go over"
    return replace(limit, note=f"{note}: memory is no limit", algbw_GBps=None)


def _link_limit(case: Case, gpu: Mapping[str, Any]) -> Expected | None:
    if case.collective != "sendrecv" or case.bytes < _FROM:
        return None
    return Expected(
        float(gpu["link_GBps"]),
        f"one-way rate of all links of {gpu['name']}",
        "a physical limit",
        physical=True,
    )


def _is_crippled(facts: Facts, gpu: Mapping[str, Any]) -> bool:
    """Fewer links than the product has (an H100 PCIe pair has 12 by design): another topology."""
    if facts.link == "pcie":
        return gpu["links"] is not None
    return None not in (facts.links, gpu["links"]) and facts.links != gpu["links"]


def lacking(facts: Facts) -> str:
    """What keeps GPUs that are in the table out of it; empty where nothing does."""
    gpu = _gpu(facts.gpu or "")
    if gpu is None or not _is_crippled(facts, gpu):
        return ""
    return f"{facts.links or 0} of {gpu['links']} NVLinks of a GPU are active"


def _has_nvls(facts: Facts) -> bool:
    version = re.match(r"(\d+)\.(\d+)", facts.nccl or "")
    old = version is not None and (int(version[1]), int(version[2])) < _FIRST_NVLS
    return facts.nvls is not False and not old

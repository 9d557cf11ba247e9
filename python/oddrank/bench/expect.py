"""What a collective should reach on this topology: published figures and physical limits.

Pure. The figures are limits.json's, each with its source. Where neither the number of GPUs nor the
topology is in the table there is no expectation, and a physical limit is shown but never judged: no
transport reaches it.

busbw is no rate of a wire where the switch adds up (NVLS): then each link carries (n + 1) / n of
the buffer, wire = algbw (n + 1) / n, and busbw = wire * 2 (n - 1) / (n + 1) may exceed the link's
rate (NVIDIA/nccl-tests, pull request 239).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oddrank.bench.between import between_nodes
from oddrank.bench.case import Case
from oddrank.bench.facts import Facts
from oddrank.bench.published import (
    FROM,
    Expected,
    from_rule,
    gpu_named,
    is_crippled,
    limits,
    pcie_rule,
    reached,
)
from oddrank.bench.windows import CACHES

SMALLEST = 1 << 20
"""Below it latency counts and no bandwidth is expected."""
_NVLS_DTYPES = {"float32", "float16", "bfloat16"}
_REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
_FIRST_NVLS = (2, 17)  # the NCCL that has it


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
    gpu = gpu_named(facts.gpu)
    if facts.n == 1:
        return _in_one_gpu(gpu, case, footprint)
    if case.collective in _REDUCING and (case.dtype not in _NVLS_DTYPES or case.op != "sum"):
        return None
    return (
        _of_system(facts, case, gpu)
        or _in_node(facts, case, gpu)
        or _over_pcie(facts, case)
        or between_nodes(facts, case, gpu)
    )


def nvls_wire(busbw: float, n: int) -> float:
    """What each GPU's link carries when an all_reduce of n ranks runs through the switch."""
    return busbw * (n + 1) / (2 * (n - 1))


def _in_node(facts: Facts, case: Case, gpu: Mapping[str, Any] | None) -> Expected | None:
    """Also within one NVLink domain of several nodes."""
    if gpu is None or not facts.together or is_crippled(facts, gpu):
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
    return from_rule(rule, case, busbw, note)


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


def _of_system(facts: Facts, case: Case, gpu: Mapping[str, Any] | None) -> Expected | None:
    """Whole installations of which one figure is published."""
    for system in limits()["systems"]:
        same = (system["n"], system["nodes"]) == (facts.n, facts.nodes)
        if same and (system["gpu"], system["collective"]) == (gpu and gpu["name"], case.collective):
            return from_rule(system, case, system["GBps"], f"{system['gpu']} x {facts.n}")
    return None


def _over_pcie(facts: Facts, case: Case) -> Expected | None:
    if facts.link != "pcie" or facts.nodes > 1 or case.collective != "all_reduce":
        return None
    rule = pcie_rule(facts)
    if rule is None:
        return None
    return from_rule(rule, case, reached(rule), f"PCIe {facts.pcie}", judged=False)


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
    if case.collective != "sendrecv" or case.bytes < FROM:
        return None
    return Expected(
        float(gpu["link_GBps"]),
        f"one-way rate of all links of {gpu['name']}",
        "a physical limit",
        physical=True,
    )


def _has_nvls(facts: Facts) -> bool:
    version = re.match(r"(\d+)\.(\d+)", facts.nccl or "")
    old = version is not None and (int(version[1]), int(version[2])) < _FIRST_NVLS
    return facts.nvls is not False and not old

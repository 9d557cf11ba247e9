"""The table of what was published, limits.json: its GPUs, and figures from its rules. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from oddrank.bench.case import Case
from oddrank.bench.facts import Facts

FROM = 1 << 30  # where a rule does not say otherwise: sizes with an expected value,
_VERDICT_FROM = 1 << 32  # and those that are judged


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


@cache
def limits() -> Mapping[str, Any]:
    """limits.json."""
    text = Path(__file__).with_name("limits.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def gpu_named(name: str) -> Mapping[str, Any] | None:
    """A product by its whole name: an H100 PCIe, an H200 NVL or a MIG slice is no H100 or H200."""
    rows = (gpu for gpu in limits()["gpus"] if re.fullmatch(gpu["match"], name.strip()))
    return next(rows, None)


def is_crippled(facts: Facts, gpu: Mapping[str, Any]) -> bool:
    """Fewer links than the product has (an H100 PCIe pair has 12 by design): another topology."""
    if facts.link == "pcie":
        return gpu["links"] is not None
    return None not in (facts.links, gpu["links"]) and facts.links != gpu["links"]


def lacking(facts: Facts) -> str:
    """What keeps GPUs that are in the table out of it; empty where nothing does."""
    gpu = gpu_named(facts.gpu or "")
    if gpu is None or not is_crippled(facts, gpu):
        return ""
    return f"{facts.links or 0} of {gpu['links']} NVLinks of a GPU are active"


def from_rule(
    rule: Mapping[str, Any], case: Case, busbw: float, note: str, judged: bool = True
) -> Expected | None:
    """A rule's figure, judged where its sizes are; None below them."""
    if case.bytes < rule.get("from", FROM):
        return None
    first = rule.get("verdict_from", _VERDICT_FROM)
    judged = judged and first is not None and case.bytes >= first
    return Expected(busbw, rule["source"], note, judged=judged)


def pcie_rule(facts: Facts) -> Mapping[str, Any] | None:
    """What an all_reduce reaches over PCIe within one node; None where that is not known."""
    return next((rule for rule in limits()["pcie"] if rule["generation"] == facts.pcie), None)


def reached(rule: Mapping[str, Any]) -> float:
    """busbw, as a share of its link."""
    return float(rule["share"] * rule["link_GBps"])

"""Published figures: the table limits.json, and the facts that select a figure. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from oddrank.bench.case import Case


@dataclass(frozen=True)
class Facts:
    """The topology of a job; None: unknown. If ranks differ, the worst (fewest links, slowest NIC).

    gpu: the driver's name of the device, None on the CPU. per_node: ranks of a node, each with its
    own GPU. nics: line rates in Gb/s of the NICs of a node that carry the traffic. links: active
    NVLinks of a GPU. domain: GPUs in one NVLink switch fabric, on all nodes.
    """

    gpu: str | None
    per_node: int
    nodes: int
    backend: str
    """"nccl", "c10d:nccl", "c10d:gloo"."""
    nccl: str | None = None
    link: Literal["nvlink", "pcie"] | None = None
    links: int | None = None
    pcie: int | None = None
    """PCIe generation."""
    nics: tuple[float, ...] = ()
    uneven: bool = False
    """Whether the nodes differ in their NICs."""
    fabric: Literal["rdma", "tcp"] | None = None
    nvls: bool | None = None
    """False if the environment turns it off."""
    ring: bool | None = None
    """False if the environment turns it off."""
    domain: int | None = None

    @property
    def n(self) -> int:
        return self.per_node * self.nodes

    @property
    def together(self) -> bool:
        """Returns whether NVLink or one host joins all ranks, with no NIC between them."""
        return self.nodes == 1 or (self.domain or 0) >= self.n


FROM = 1 << 30  # default of a rule: smallest size with an expected value,
_VERDICT_FROM = 1 << 32  # and smallest size that is judged


@dataclass(frozen=True)
class Expected:
    """An expectation in 1e9 bytes a second; algbw if busbw is not defined (one rank)."""

    busbw_GBps: float | None
    source: str
    note: str = ""
    algbw_GBps: float | None = None
    judged: bool = False
    """Whether a row below it is a finding."""
    physical: bool = False
    """A limit that nothing exceeds, not the usual figure."""
    doubt: str = ""
    """Why the figure judges nothing here, though the topology fits."""


@cache
def limits() -> Mapping[str, Any]:
    """Returns the content of limits.json."""
    text = Path(__file__).with_name("limits.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def gpu_named(name: str) -> Mapping[str, Any] | None:
    """Finds a product by its whole name: an H100 PCIe, an H200 NVL or a MIG slice is no H100."""
    rows = (gpu for gpu in limits()["gpus"] if re.fullmatch(gpu["match"], name.strip()))
    return next(rows, None)


def is_crippled(facts: Facts, gpu: Mapping[str, Any]) -> bool:
    """Returns whether the GPU has other than the product's number of links: another topology."""
    if facts.link == "pcie":
        return gpu["links"] is not None
    return None not in (facts.links, gpu["links"]) and facts.links != gpu["links"]


def lacking(facts: Facts) -> str:
    """Returns why the table does not apply to a GPU that is in it; "" if it does."""
    gpu = gpu_named(facts.gpu or "")
    if gpu is None or not is_crippled(facts, gpu):
        return ""
    return f"{facts.links or 0} of {gpu['links']} NVLinks of a GPU are active"


def from_rule(
    rule: Mapping[str, Any], case: Case, busbw: float, note: str, judged: bool = True
) -> Expected | None:
    """Returns a rule's figure, judged from the rule's `verdict_from` on; None below its `from`."""
    if case.bytes < rule.get("from", FROM):
        return None
    first = rule.get("verdict_from", _VERDICT_FROM)
    judged = judged and first is not None and case.bytes >= first
    return Expected(busbw, rule["source"], note, judged=judged)


def pcie_rule(facts: Facts) -> Mapping[str, Any] | None:
    """Returns the rule for an all_reduce over PCIe within one node; None if unknown."""
    return next((rule for rule in limits()["pcie"] if rule["generation"] == facts.pcie), None)


def reached(rule: Mapping[str, Any]) -> float:
    """Returns the busbw that the rule expects: its share of the link's rate."""
    return float(rule["share"] * rule["link_GBps"])

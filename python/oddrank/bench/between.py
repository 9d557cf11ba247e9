"""What collectives should reach between nodes: what their NICs can, where these are known. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oddrank.bench.case import Case
from oddrank.bench.facts import Facts
from oddrank.bench.published import Expected, from_rule, is_crippled, limits, pcie_rule, reached


def between_nodes(facts: Facts, case: Case, gpu: Mapping[str, Any] | None) -> Expected | None:
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
        found = from_rule(rule, case, busbw, note, judged=known)
        return replace(found, doubt=doubt) if found else None
    return None


def _may_be_slower_inside(
    facts: Facts, case: Case, gpu: Mapping[str, Any] | None, busbw: float
) -> bool:
    """Whether a GPU's PCIe, or what joins a node's GPUs, is not known to be enough for the NICs."""
    rule = pcie_rule(facts)
    of_a_gpu = max(*facts.nics, sum(facts.nics) / facts.per_node) / 8
    if rule and of_a_gpu > rule["link_GBps"]:
        return True
    if facts.per_node == 1 or (gpu and gpu["links"] and not is_crippled(facts, gpu)):
        return False
    return not rule or case.collective != "all_reduce" or reached(rule) < busbw


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

"""Reads the error counters of links and devices before most other stages, and after them."""

import time
from collections import Counter as Count
from collections.abc import Collection, Iterable, Mapping
from typing import TypedDict

from oddrank import _native
from oddrank.control.evidence import Node, node_of
from oddrank.control.stages import Context, RunState, Skip, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Confidence, Evidence, Finding, Who, ranks_text
from oddrank.machine.device import GPU, choose, gpu_index
from oddrank.selftest import counters, facts
from oddrank.selftest.choice import Options
from oddrank.selftest.counters import Counter, Scope

# Key of the first reading in the rank's scratch.
KEPT = "counters"
_MOST_TEXT = 100

# Fewer GPUs of a node that count the same error may be chance.
_FEW = 3
_LOOK: dict[Scope, tuple[str, ...]] = {
    "gpu": ("nvidia-smi -q -d ECC,PERFORMANCE", "dmesg -T | grep -i -e xid -e aer"),
    "nvlink": ("nvidia-smi nvlink -e", "dmesg -T | grep -i xid"),
    "pci": ("lspci -vv | grep -i -e lnksta -e uesta", "dmesg -T | grep -i aer"),
    "tcp": (
        "ip -s link; ethtool -S INTERFACE | grep -i -e err -e drop",
        "ping -c 1000 -i 0.01 -s 1400 ANOTHER_NODE  (which of them loses packets)",
    ),
    "port": ("perfquery -x  (or: ethtool -S INTERFACE)", "ibstat", "dmesg -T | grep -i mlx"),
}
_MOST_PLACES = 8


class Looked(TypedDict):
    """counters: how many were read. not_readable: why its GPU's were not; "" if they were."""

    counters: int
    not_readable: str


class Grown(TypedDict):
    """seconds: between the two readings. grown: by counter."""

    seconds: float
    grown: counters.Read
    not_readable: str


def plan(run: RunState) -> str:
    """Returns the tested device, also if a rank lacks the part that tests it."""
    return choose(facts.results(run).values())


def read(context: Context[str]) -> tuple[counters.Read, str]:
    """Returns the counters, and why its GPU's are missing. One rank reads its node's counters."""
    sysfs = counters.SYSFS
    found: counters.Read = {}
    why = ""
    if context.parameters == GPU and _native.cuda_part().module:
        context.step("read the error counters of the GPU")
        try:
            gpu = _native.cuda().devices()[gpu_index(context.launch)]
            found |= counters.of_gpu(gpu["uuid"].partition("-")[2])
            found |= counters.of_pci(gpu["pci_bus_id"], sysfs, "GPU")
        except OddrankError as error:
            why = str(error)[:_MOST_TEXT]
    if context.launch.local_rank == 0:
        context.step("read the error counters of the network devices")
        found |= counters.of_ports(sysfs)
        if context.master:  # ranks on other hosts
            found |= counters.of_tcp()
    return found, why


def _measure(context: Context[str]) -> Looked:
    found, why = read(context)
    context.scratch[KEPT] = (time.monotonic(), found)
    return {"counters": len(found), "not_readable": why}


def _plan_again(run: RunState) -> str | Skip:
    looked: Mapping[int, Looked] = run.of("counters")
    if not any(result["counters"] for result in looked.values()):
        return Skip("no counter of a link or device is readable here")
    return plan(run)


def _measure_again(context: Context[str]) -> Grown:
    began, before = context.scratch[KEPT]
    after, why = read(context)
    return {
        "seconds": time.monotonic() - began,
        "grown": counters.growth(before, after),
        "not_readable": why,
    }


def _too_much(key: str, grown: Mapping[str, int], seconds: float) -> bool:
    """Returns whether a counter grew by more than on healthy hardware in that time, or a minute."""
    counter, by = counters.BY_NAME.get(counters.split(key)[1]), grown[key]
    if counter is None or counter.a_minute is None:
        return False
    if counter.scope == "tcp":
        sent = grown.get("TCP segments", 0)
        return by > counters.FEW_REPEATED and by > counters.SHARE_REPEATED * sent
    return by > counter.a_minute * max(1.0, seconds / 60)


def _judge_growth(run: RunState, results: Mapping[int, Grown]) -> list[Finding]:
    """Judges growth without peers, except that growth on most nodes is usual on such machines."""
    grown: dict[str, dict[int, dict[str, int]]] = {}
    for rank, result in results.items():
        for key, by in result["grown"].items():
            if _too_much(key, result["grown"], result["seconds"]):
                place, name = counters.split(key)
                grown.setdefault(name, {}).setdefault(rank, {})[place] = by
    found = []
    nodes = _nodes(run, results)
    for name, ranks in grown.items():
        counter = counters.BY_NAME[name]
        if len(nodes) > 2 and 2 * len(_nodes(run, ranks)) > len(nodes):
            found.append(usual_here(counter, ranks))
            continue
        shared = _most_gpus(run, counter, ranks)
        found += [on_most_gpus(run, group, counter) for group in shared]
        covered = {rank for group in shared for rank in group}
        found += [
            grew(run, rank, counter, places, results[rank]["seconds"])
            for rank, places in ranks.items()
            if rank not in covered
        ]
    return found


def _most_gpus(
    run: RunState, counter: counters.Counter, ranks: Mapping[int, Mapping[str, int]]
) -> list[list[int]]:
    """Returns ranks by node, for nodes on which most GPUs, and at least _FEW, count it."""
    gpus: dict[Node, list[int]] = {}
    for rank, places in ranks.items():
        if is_gpus(counter, places):
            gpus.setdefault(node_of(run.states[rank]), []).append(rank)
    sizes = Count(map(node_of, run.states.values())) if gpus else Count()
    return [
        group for node, group in gpus.items() if len(group) >= _FEW and 2 * len(group) > sizes[node]
    ]


def _nodes(run: RunState, ranks: Iterable[int]) -> set[Node]:
    return {node_of(run.states[rank]) for rank in ranks}


def grew(
    run: RunState, rank: int, counter: Counter, places: Mapping[str, int], seconds: float
) -> Finding:
    """A rank's GPU, or its node's network devices, counted errors while the test ran."""
    shown = sorted(places.items(), key=lambda place: -place[1])[:_MOST_PLACES]
    where = ", ".join(place for place, _ in shown if place != "GPU")
    who = run.who([rank]) if is_gpus(counter, places) else _node_of(run, rank)
    link = "" if counter.own else "; the other end of a link may be the cause"
    name = counter.name.replace("_", " ")
    most = shown[0][1]
    amount = f"{most / 1e9:.1f} s" if counter.unit == "ns" else f"{most}"
    return Finding(
        condition="suspicious",
        who=who,
        cause=_cause(counter),
        drains_node=counter.own,
        what=f"{who} is suspicious: {name.removesuffix(' ns')} grew by {amount}"
        f" within {seconds:.0f} s" + (f" ({where})" if where else ""),
        stage="counters_recheck",
        evidence=tuple(
            Evidence(f"{place} {name}: +{by}", counter.name, by, counter.unit or None)
            for place, by in shown
        ),
        confidence=Confidence("medium", f"the hardware counts its own errors{link}"),
        next=_LOOK[counter.scope],
    )


def _cause(counter: Counter) -> str:
    if counter.scope == "tcp":
        return "tcp-retransmits"
    return "own-errors-counted" if counter.own else "errors-counted"


def is_gpus(counter: Counter, places: Collection[str]) -> bool:
    """Returns whether the rank's own GPU counted it. Network devices belong to the node."""
    return counter.scope == "nvlink" or set(places) == {"GPU"}


def _node_of(run: RunState, rank: int) -> Who:
    here = node_of(run.states[rank])
    ranks = tuple(sorted(r for r, state in run.states.items() if node_of(state) == here))
    return Who("node", ranks, run.states[rank].host)


def on_most_gpus(run: RunState, ranks: Collection[int], counter: Counter) -> Finding:
    """Most GPUs of a node count it: something that they share is at fault."""
    who = _node_of(run, min(ranks))
    name = counter.name.replace("_", " ")
    return Finding(
        condition="suspicious",
        who=who,
        cause="errors-everywhere",
        what=f"{who} is suspicious: {name.removesuffix(' ns')} grew on {len(ranks)} of its GPUs",
        stage="counters_recheck",
        evidence=(Evidence(f"{ranks_text(ranks)} saw it grow", counter.name),),
        confidence=Confidence("medium", "most GPUs of the node count it: it points at no GPU"),
        next=_LOOK[counter.scope],
    )


def usual_here(counter: Counter, ranks: Collection[int]) -> Finding:
    """Most nodes count it: the machine, or the network between the nodes, is so."""
    name = counter.name.replace("_", " ")
    return Finding(
        condition="unknown",
        who=Who("node"),
        cause="errors-everywhere",
        what=f"{name} grew on most nodes (read by {ranks_text(ranks)}): it points at no node",
        stage="counters_recheck",
        evidence=(Evidence(f"{ranks_text(ranks)} saw it grow", counter.name),),
        confidence=Confidence("low", "most nodes have it: it points at none"),
        next=_LOOK[counter.scope],
    )


def stage(options: Options) -> Stage[str, Looked, list[Finding]]:
    return Stage("counters", 60, _measure, plan=plan)


def recheck(options: Options) -> Stage[str, Grown, list[Finding]]:
    return Stage("counters_recheck", 60, _measure_again, _judge_growth, _plan_again, closes=True)

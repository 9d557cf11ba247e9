"""Tests TCP between nodes, by the interfaces that the job will use.

Three stages: every node listens, every node tries the others, and after failures all is tried once
more. The kernel routes these connections as it routes those of NCCL and gloo.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias, TypedDict

from oddrank import _native
from oddrank.control.stages import Context, RunState, Skip, Stage
from oddrank.finding import Finding
from oddrank.selftest import Options, reach_matrix
from oddrank.selftest.connections import (
    GLOO,
    NCCL,
    Listeners,
    Listening,
    Place,
    addresses,
    attempts,
    pack,
    unpack,
    ways,
)
from oddrank.selftest.findings import reach as findings
from oddrank.selftest.nodes import NodeLeaders, by_lowest_rank, leaders_of_several

_LISTEN_SECONDS, _TRY_SECONDS = 10, 20
# A node listens until the last node has made its second attempts.
_SERVE_SECONDS = _LISTEN_SECONDS + 2 * _TRY_SECONDS
# A plan may have 65,000 bytes.
_PLAN_BYTES = 60_000
_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _listen(context: Context[str]) -> Listening | None:
    if context.launch.rank not in NodeLeaders.unpack(context.parameters):
        return None
    context.step("listen on the interfaces of the job")
    known = addresses()
    towards = _native.core().control_interface_towards(context.master) if context.master else ""
    found = ways(towards, known)
    listeners = Listeners({known[name] for name in found.values()}, _SERVE_SECONDS)
    return {
        "ways": {
            way: {"interface": name, "address": known[name], "port": listeners.ports[known[name]]}
            for way, name in found.items()
            if known[name] in listeners.ports
        },
        "failed": listeners.failed,
        "asked": {name: os.environ[name][:200] for name in (NCCL, GLOO) if os.environ.get(name)},
        "interfaces": sorted(known)[:32],
        "ephemeral": _ephemeral(),
    }


def _ephemeral() -> str | None:
    try:
        return "-".join(_PORTS.read_text(encoding="ascii").split())
    except OSError:
        return None


def _listening(run: RunState) -> dict[int, Listening]:
    """Returns what the nodes listen at, by the rank that does; nodes are numbered in this order."""
    results: Mapping[int, Listening | None] = run.of("listen")
    return {r: m for r, m in sorted(results.items()) if m is not None}


def _ways(nodes: Mapping[int, Listening]) -> dict[str, list[Place]]:
    """Returns way -> the place of each node. Leaves out ways with the places of an earlier way."""
    labels = list(dict.fromkeys(way for node in nodes.values() for way in node["ways"]))
    found: dict[str, list[Place]] = {}
    for label in labels:
        given = [node["ways"].get(label) for node in nodes.values()]
        places = [(way["address"], way["port"]) if way else None for way in given]
        if places not in found.values():
            found[label] = places
    return found


class Plan(TypedDict):
    """ranks: NodeLeaders; places: by way and node; both packed."""

    ranks: str
    ways: list[str]
    places: str


class Reached(TypedDict):
    """rows: way -> letters of the peers, see reach_matrix. errors: letter -> the kernel's text."""

    rows: dict[str, str]
    errors: dict[str, str]


# None: another rank measures for its node.
Result: TypeAlias = "Reached | None"


def _plan(run: RunState) -> Plan | Skip:
    nodes = _listening(run)
    if len(nodes) < 2:
        return Skip("one node")
    found = _ways(nodes)
    while found:
        packed = pack([*found.values()])
        if len(packed) <= _PLAN_BYTES:
            who = NodeLeaders.among(nodes).pack()
            return {"ranks": who, "ways": [*found], "places": packed}
        found.popitem()
    return Skip("no interface to try, or too many nodes for one message")


def _measure(context: Context[Plan]) -> Result:
    params = context.parameters
    ranks = NodeLeaders.unpack(params["ranks"])
    if context.launch.rank not in ranks:
        return None
    own, nodes = ranks.place(context.launch.rank), len(ranks)
    others = reach_matrix.peers(own, nodes)
    found = zip(params["ways"], unpack(params["places"], nodes), strict=True)
    places = {way: [every[peer] if every[own] else None for peer in others] for way, every in found}
    context.step("connect to the other nodes")
    letters, errors = attempts([place for every in places.values() for place in every])
    rows = iter(letters)
    return {
        "rows": {way: "".join(next(rows) for _ in every) for way, every in places.items()},
        "errors": errors,
    }


def _judge(run: RunState, results: Mapping[int, Result]) -> list[Finding]:
    return _judged(run, results, _rows(results))


def _judge_recheck(run: RunState, results: Mapping[int, Result]) -> list[Finding]:
    """Judges attempts that failed twice."""
    before: Mapping[int, Result] = run.of("reach")
    second = _rows(results)
    failed_twice = {
        rank: {way: reach_matrix.both(row, second[rank][way]) for way, row in rows.items()}
        for rank, rows in _rows(before).items()
    }
    return _judged(run, before, failed_twice)


def _rows(results: Mapping[int, Result]) -> dict[int, dict[str, str]]:
    return {rank: one["rows"] for rank, one in results.items() if one is not None}


def _judged(
    run: RunState, first: Mapping[int, Result], rows: Mapping[int, Mapping[str, str]]
) -> list[Finding]:
    """Judges all ways. first: of stage reach, for the errors. rows: rank -> way -> letters."""
    listening, nodes = _listening(run), by_lowest_rank(run)
    errors = [one["errors"] for one in first.values() if one is not None]
    network = findings.Network(
        [nodes[rank] for rank in listening],
        [*listening.values()],
        {letter: text for one in errors for letter, text in one.items()},
    )
    found = _without_interface(network)
    for way in next(iter(rows.values()), {}):
        judgement = reach_matrix.judge([rows[rank][way] for rank in listening])
        found += findings.of_way(network, way, judgement)
    return found


def _without_interface(network: findings.Network) -> list[Finding]:
    """Finds nodes on which NCCL's or gloo's variable names no interface with an address."""
    found = []
    for variable in (NCCL, GLOO):
        asked = [n for n, m in enumerate(network.listening) if variable in m["asked"]]
        lacking = [n for n in asked if variable not in network.listening[n]["ways"]]
        many = 2 * len(lacking) >= len(asked)
        for nodes in [lacking] if many and lacking else [[node] for node in lacking]:
            found.append(findings.no_interface(network, nodes, variable, many=many))
    return found


def listen(options: Options) -> Stage[str, Listening | None, list[Finding]]:
    return Stage("listen", _LISTEN_SECONDS, _listen, plan=leaders_of_several, shown=False)


def stage(options: Options) -> Stage[Plan, Result, list[Finding]]:
    return Stage("reach", _TRY_SECONDS, _measure, _judge, _plan)


def recheck(options: Options) -> Stage[Plan, Result, list[Finding]]:
    """Tries again: packets get lost, and a busy node may not answer in time."""
    return Stage("reach_recheck", _TRY_SECONDS, _measure, _judge_recheck, _plan, confirms="reach")

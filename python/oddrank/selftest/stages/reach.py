"""TCP between nodes: who can connect to whom, by the interfaces that the job will use.

Three stages: every node listens, every node tries the others, and what failed is tried once more.
Connections go where the kernel routes them, as those of NCCL and gloo do.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.control.stages import Context, Rounds, Skip, Stage
from oddrank.finding import Finding
from oddrank.selftest.choice import Options
from oddrank.selftest.findings import reach as findings
from oddrank.selftest.findings.names import by_lowest_rank
from oddrank.selftest.one_a_node import OneANode, hosts_of
from oddrank.selftest.reach import matrix
from oddrank.selftest.reach.attempts import Attempts
from oddrank.selftest.reach.listeners import Listeners
from oddrank.selftest.reach.ways import GLOO, NCCL, Place, addresses, pack, unpack, ways

_LISTEN_SECONDS, _TRY_SECONDS = 10, 20
# Until the last node is through with its second attempts.
_SERVE_SECONDS = _LISTEN_SECONDS + 2 * _TRY_SECONDS
# Of the 65,000 of a plan.
_PLAN_BYTES = 60_000
_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _plan_listen(rounds: Rounds) -> str | Skip:
    return OneANode.of(rounds).pack() if hosts_of(rounds) > 1 else Skip("one host")


def _listen(context: Context) -> dict[str, Any] | None:
    if context.launch.rank not in OneANode.unpack(context.parameters):
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


def _listening(rounds: Rounds) -> dict[int, Mapping[str, Any]]:
    """By the rank that listens for its node; nodes by number are in this order."""
    return {r: m for r, m in sorted(rounds.of("listen").items()) if m is not None}


def _ways(nodes: Mapping[int, Mapping[str, Any]]) -> dict[str, list[Place]]:
    """Way -> the place of each node; not those that lead where an earlier one leads."""
    labels = list(dict.fromkeys(way for node in nodes.values() for way in node["ways"]))
    found: dict[str, list[Place]] = {}
    for label in labels:
        given = [node["ways"].get(label) for node in nodes.values()]
        places = [(way["address"], way["port"]) if way else None for way in given]
        if places not in found.values():
            found[label] = places
    return found


def _plan(rounds: Rounds) -> dict[str, Any] | Skip:
    nodes = _listening(rounds)
    if len(nodes) < 2:
        return Skip("one host")
    found = _ways(nodes)
    while found:
        packed = pack([*found.values()])
        if len(packed) <= _PLAN_BYTES:
            who = OneANode.among(nodes).pack()
            return {"ranks": who, "ways": [*found], "places": packed}
        found.popitem()
    return Skip("no interface to try, or too many nodes for one message")


def _measure(context: Context) -> dict[str, Any] | None:
    told = context.parameters
    ranks = OneANode.unpack(told["ranks"])
    if context.launch.rank not in ranks:
        return None
    own, nodes = ranks.place(context.launch.rank), len(ranks)
    others = matrix.peers(own, nodes)
    found = zip(told["ways"], unpack(told["places"], nodes), strict=True)
    places = {way: [every[peer] if every[own] else None for peer in others] for way, every in found}
    context.step("connect to the other nodes")
    attempts = Attempts([place for every in places.values() for place in every])
    rows = iter(attempts.letters)
    return {
        "rows": {way: "".join(next(rows) for _ in every) for way, every in places.items()},
        "errors": attempts.errors,
    }


def _judge(rounds: Rounds) -> list[Finding]:
    return _judged(rounds, {r: m["rows"] for r, m in rounds.of("reach").items() if m is not None})


def _judge_again(rounds: Rounds) -> list[Finding]:
    """What failed twice."""
    first, second = (
        {rank: m["rows"] for rank, m in rounds.of(stage).items() if m is not None}
        for stage in ("reach", "reach_again")
    )
    return _judged(
        rounds,
        {
            rank: {way: matrix.both(row, second[rank][way]) for way, row in rows.items()}
            for rank, rows in first.items()
        },
    )


def _judged(rounds: Rounds, rows: Mapping[int, Mapping[str, str]]) -> list[Finding]:
    """`rows`: way -> letters, by rank."""
    listening, nodes = _listening(rounds), by_lowest_rank(rounds)
    errors = [said["errors"] for said in rounds.of("reach").values() if said is not None]
    network = findings.Network(
        [nodes[rank] for rank in listening],
        [*listening.values()],
        {letter: text for one in errors for letter, text in one.items()},
    )
    found = _without_interface(network)
    for way in next(iter(rows.values()), {}):
        judgement = matrix.judge([rows[rank][way] for rank in listening])
        found += findings.of_way(network, way, judgement)
    return found


def _without_interface(network: findings.Network) -> list[Finding]:
    """Nodes on which the variable names no interface with an address."""
    found = []
    for variable in (NCCL, GLOO):
        asked = [n for n, m in enumerate(network.listening) if variable in m["asked"]]
        lacking = [n for n in asked if variable not in network.listening[n]["ways"]]
        if lacking and 2 * len(lacking) < len(asked):
            found += [findings.no_interface(network, node, variable) for node in lacking]
        elif lacking:
            found.append(findings.nobodys_interface(network, lacking, variable))
    return found


def listen(options: Options) -> Stage:
    return Stage("listen", _LISTEN_SECONDS, _listen, plan=_plan_listen, shown=False)


def stage(options: Options) -> Stage:
    return Stage("reach", _TRY_SECONDS, _measure, _judge, _plan)


def again(options: Options) -> Stage:
    """Packets get lost, and a busy node may not answer in time: nobody is named for that."""
    return Stage("reach_again", _TRY_SECONDS, _measure, _judge_again, _plan, confirms="reach")

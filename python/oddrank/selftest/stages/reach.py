"""Tests TCP between nodes, by the interfaces that the job will use.

Three stages: every node listens, every node tries the others, and after failures all is tried once
more. The kernel routes these connections as it routes NCCL's and gloo's.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypedDict

from oddrank import _native
from oddrank.control.stages import Context, RunState, Skip, Stage
from oddrank.finding import Evidence, Finding, Level, Row, Who, grouped
from oddrank.machine import small_file
from oddrank.selftest import Options, connections, reach_matrix
from oddrank.selftest.connections import GLOO, NCCL, RENDEZVOUS, Listening, Place
from oddrank.selftest.nodes import by_lowest_rank, hosts, leads, pack_leaders
from oddrank.selftest.reach_matrix import Failure, Judgement, Link, Node

_LISTEN_SECONDS, _TRY_SECONDS = 10, 20
# A node listens until the last node has made its second attempts.
_SERVE_SECONDS = _LISTEN_SECONDS + 2 * _TRY_SECONDS
# A plan may have 65,000 bytes.
_PLAN_BYTES = 60_000
_PORTS = "/proc/sys/net/ipv4/ip_local_port_range"

_WORDS = {
    reach_matrix.REFUSED: "refused",
    reach_matrix.NO_ANSWER: "no answer, the packets are dropped",
    reach_matrix.UNREACHABLE: "unreachable",
    reach_matrix.SILENT: "connected, but what was sent did not come back",
    reach_matrix.OTHER: "failed",
}
_SHOWN = 4


@dataclass(frozen=True)
class Network:
    """The nodes by number: names, where they listen. errors: letter -> the kernel's error text."""

    nodes: Sequence[Who]
    listening: Sequence[Listening]
    errors: Mapping[str, str]

    def where(self, node: int, way: str) -> str:
        place = self.listening[node]["ways"][way]
        return f"{self.nodes[node].host} ({place['interface']} {place['address']})"

    def failure(self, way: str, failure: Failure) -> Evidence:
        """Says which node tried which, and the result."""
        node, peer, letter = failure
        word, kernel = _WORDS[letter], self.errors.get(letter)
        said = f"{word} ({kernel})" if kernel else word
        port = self.listening[peer]["ways"][way]["port"]
        text = f"{self.where(node, way)} to {self.where(peer, way)} port {port}: {said}"
        return Evidence(text, "connect")

    def failures(self, way: str, failures: Iterable[Failure]) -> tuple[Evidence, ...]:
        return tuple(self.failure(way, one) for one in [*failures][:_SHOWN])

    def advice(self, way: str, failure: Failure) -> tuple[str, ...]:
        node, peer, _ = failure
        place = self.listening[peer]["ways"][way]
        first, second = self.nodes[node].host, self.nodes[peer].host
        return (
            f"nft list ruleset || iptables-save  (on {second}, then on {first})",
            f"ip -br addr; ip route get {place['address']}  (on {first})",
            f"nc -l {place['port']} (on {second}); nc -vz {place['address']} {place['port']}"
            f" (on {first})",
        )

    def ports(self) -> str:
        """Returns the kernel's range of ephemeral ports in words, if all nodes have the same."""
        ranges = {node["ephemeral"] for node in self.listening}
        only = ranges.pop() if len(ranges) == 1 else None
        return f"TCP ports {only}" if only else "the ephemeral TCP ports"


def of_way(network: Network, way: str, judgement: Judgement) -> list[Finding]:
    if judgement.all_closed or judgement.scattered:
        return [of_nobody(network, way, judgement)]
    well = len(network.nodes) - len(judgement.nodes)
    return [
        *(odd_node(network, way, node, well) for node in judgement.nodes),
        *(broken_link(network, way, link) for link in judgement.links),
    ]


# fmt: off
_OTHERS: tuple[Level, str] = ("high", "the {well} other nodes reach each other")
ODD_NODES = {
    "deaf": Row(
        "unreachable-node", "broken", "{who} can't be reached {over}: {failed} connections to it"
        " fail, its own come through", _OTHERS, drains_node=True),
    "silent": Row(
        "node-reaches-nobody", "broken", "{who} can't reach the others {over}: {failed} of its"
        " connections fail, those to it come through", _OTHERS, drains_node=True),
    "cut off": Row(
        "node-cut-off", "broken", "{who} is cut off {over}: {failed} connections to it and from it"
        " fail", _OTHERS, drains_node=True),
}
ONE_WAY = Row(
    "one-way-link", "broken", "{first} can't connect to {second}, only the other way round, {over}",
    ("medium", "{why}"))
CLOSED = Row(
    "closed-link", "broken", "{first} and {second} can't connect to each other {over}",
    ("medium", "{why}"))
# A firewall, or an interface that does not connect the nodes.
ALL_CLOSED = Row(
    "all-closed", "unknown",
    "no node reaches any other {over}: the ranks have met by rank 0's port alone",
    ("low", "all {tried} attempts failed"),
    ("open {ports} between the nodes, or name another interface (NCCL_SOCKET_IFNAME,"
     " GLOO_SOCKET_IFNAME)",))
# Failures that no node and no few links explain.
NO_PATTERN = Row(
    "no-pattern", "unknown", "{failed} of {tried} connections between nodes fail {over},{how}",
    ("low", "too few nodes reach each other to name one"))
NO_INTERFACE = Row(
    "no-interface", "broken", "{who} has no interface with an address that fits {value}",
    ("high", "most nodes have one"), ("ip -br addr  (on {host})",))
# If many lack it, the variable is wrong, not the nodes.
NO_INTERFACE_ANYWHERE = Row(
    "no-interface-anywhere", "unknown",
    "no interface with an address fits {value} on {lacking} of {nodes} nodes: {whom}",
    ("low", "half of the nodes or more have none"), ("ip -br addr",))
# fmt: on


def odd_node(network: Network, way: str, odd: Node, well: int) -> Finding:
    row, failed = ODD_NODES[odd.how], f"{len(odd.failures)} of {odd.tried}"
    row = row if well > 2 else replace(row, sure=("medium", row.sure[1]))
    seen = network.failures(way, odd.failures)
    found = row.found(network.nodes[odd.node], *seen, over=_over(way), failed=failed, well=well)
    return replace(found, next=network.advice(way, odd.failures[0]))


def broken_link(network: Network, way: str, link: Link) -> Finding:
    one_way = len(link.failures) == 1
    ends = link.failures[0][:2] if one_way else link.ends
    first, second = (network.nodes[end] for end in ends)
    ranks = [rank for end in link.ends for rank in network.nodes[end].ranks]
    others = len(network.nodes) > 2
    why = "both reach the other nodes" if others else "with two nodes either end may be at fault"
    found = (ONE_WAY if one_way else CLOSED).found(
        Who("link", tuple(ranks)), *network.failures(way, link.failures),
        first=first, second=second, over=_over(way), why=why,
    )  # fmt: skip
    return replace(found, next=network.advice(way, link.failures[0]))


def of_nobody(network: Network, way: str, judgement: Judgement) -> Finding:
    groups = "; ".join(
        hosts(network.nodes[node] for node in group) for group in judgement.groups[:_SHOWN]
    )
    seen = (Evidence(f"nodes that reach each other: {groups}", "connect"),) if groups else ()
    found = (ALL_CLOSED if judgement.all_closed else NO_PATTERN).found(
        Who("node"),
        *seen, *network.failures(way, judgement.failures), *_same_addresses(network, way),
        failed=judgement.failed, tried=judgement.tried, over=_over(way), ports=network.ports(),
        how=" between groups of nodes" if groups else " and no node explains them",
    )  # fmt: skip
    return replace(found, next=found.next + network.advice(way, judgement.failures[0]))


def no_interface(network: Network, lacking: Sequence[int], variable: str, *, many: bool) -> Finding:
    who, said = network.nodes[lacking[0]], network.listening[lacking[0]]
    failed = "".join(f"; {at}: {text}" for at, text in [*said["failed"].items()][:_SHOWN])
    has = f"{who.host if many else 'it'} has {', '.join(said['interfaces'])}{failed}"
    return (NO_INTERFACE_ANYWHERE if many else NO_INTERFACE).found(
        Who("node") if many else who, Evidence(has, "interfaces with an address"), host=who.host,
        value=f"{variable}={said['asked'][variable]}", lacking=len(lacking),
        nodes=len(network.nodes), whom=hosts(network.nodes[node] for node in lacking),
    )  # fmt: skip


def _over(way: str) -> str:
    return f"over the {'rendezvous interface' if way == RENDEZVOUS else f'interface of {way}'}"


def _same_addresses(network: Network, way: str) -> tuple[Evidence, ...]:
    """Shows nodes with the same address, as container bridges have: they reach themselves."""
    ways = ((node, said["ways"].get(way)) for node, said in enumerate(network.listening))
    owners = grouped((own["address"], node) for node, own in ways if own)
    twins = [(address, nodes) for address, nodes in owners.items() if len(nodes) > 1]
    return tuple(
        Evidence(
            f"{len(nodes)} nodes have the address {address}:"
            f" {hosts(network.nodes[node] for node in nodes)}",
            network.listening[nodes[0]]["ways"][way]["interface"],
        )
        for address, nodes in twins[:_SHOWN]
    )


def _listen(context: Context[str]) -> Listening | None:
    if leads(context.launch.rank, context.parameters) is None:
        return None
    context.step("listen on the interfaces of the job")
    known = connections.addresses()
    towards = _native.core().control_interface_towards(context.master) if context.master else ""
    found = connections.ways(towards, known)
    listeners = connections.Listeners({known[name] for name in found.values()}, _SERVE_SECONDS)
    return {
        "ways": {
            way: {"interface": name, "address": known[name], "port": listeners.ports[known[name]]}
            for way, name in found.items()
            if known[name] in listeners.ports
        },
        "failed": listeners.failed,
        "asked": {name: os.environ[name][:200] for name in (NCCL, GLOO) if os.environ.get(name)},
        "interfaces": sorted(known)[:32],
        "ephemeral": "-".join(small_file(_PORTS).split()) or None,
    }


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
    """ranks: by pack_leaders; nodes: how many; places: by way and node; both packed."""

    ranks: str
    nodes: int
    ways: list[str]
    places: str


class Reached(TypedDict):
    """rows: way -> letters of the peers, see reach_matrix. errors: letter -> the kernel's text."""

    rows: dict[str, str]
    errors: dict[str, str]


Result: TypeAlias = "Reached | None"  # None if another rank measures for its node


def _plan(run: RunState) -> Plan | Skip:
    nodes = _listening(run)
    if len(nodes) < 2:
        return Skip("one node")
    found = _ways(nodes)
    while found:
        packed = connections.pack([*found.values()])
        if len(packed) <= _PLAN_BYTES:
            who = pack_leaders(nodes)
            return {"ranks": who, "nodes": len(nodes), "ways": [*found], "places": packed}
        found.popitem()
    return Skip("no interface to try, or too many nodes for one message")


def _measure(context: Context[Plan]) -> Result:
    params = context.parameters
    own, nodes = leads(context.launch.rank, params["ranks"]), params["nodes"]
    if own is None:
        return None
    others = reach_matrix.peers(own, nodes)
    found = zip(params["ways"], connections.unpack(params["places"], nodes), strict=True)
    places = {way: [every[peer] if every[own] else None for peer in others] for way, every in found}
    context.step("connect to the other nodes")
    letters, errors = connections.attempts([one for every in places.values() for one in every])
    rows = iter(letters)
    return {
        "rows": {way: "".join(next(rows) for _ in every) for way, every in places.items()},
        "errors": errors,
    }


def _judge(run: RunState, results: Mapping[int, Result]) -> list[Finding]:
    return _judged(run, results, _rows(results))


def _judge_recheck(run: RunState, results: Mapping[int, Result]) -> list[Finding]:
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
    network = Network(
        [nodes[rank] for rank in listening],
        [*listening.values()],
        {letter: text for one in errors for letter, text in one.items()},
    )
    found = _without_interface(network)
    for way in next(iter(rows.values()), {}):
        judgement = reach_matrix.judge([rows[rank][way] for rank in listening])
        found += of_way(network, way, judgement)
    return found


def _without_interface(network: Network) -> list[Finding]:
    """Finds nodes on which NCCL's or gloo's variable names no interface with an address."""
    found = []
    for variable in (NCCL, GLOO):
        asked = [n for n, m in enumerate(network.listening) if variable in m["asked"]]
        lacking = [n for n in asked if variable not in network.listening[n]["ways"]]
        many = 2 * len(lacking) >= len(asked)
        for nodes in [lacking] if many and lacking else [[node] for node in lacking]:
            found.append(no_interface(network, nodes, variable, many=many))
    return found


def listen(options: Options) -> Stage[str, Listening | None, list[Finding]]:
    def make_plan(run: RunState) -> str | Skip:
        nodes = by_lowest_rank(run)
        return pack_leaders(nodes) if len(nodes) > 1 else Skip("one node")

    return Stage("listen", _LISTEN_SECONDS, _listen, plan=make_plan, shown=False)


def stage(options: Options) -> Stage[Plan, Result, list[Finding]]:
    return Stage("reach", _TRY_SECONDS, _measure, _judge, _plan)


def recheck(options: Options) -> Stage[Plan, Result, list[Finding]]:
    """Tries again: packets get lost, and a busy node may not answer in time."""
    return Stage("reach_recheck", _TRY_SECONDS, _measure, _judge_recheck, _plan, confirms="reach")

"""Findings of the stage reach: one function per cause."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from oddrank.finding import Evidence, Finding, Level, Row, Who
from oddrank.selftest.connections import RENDEZVOUS, Listening
from oddrank.selftest.nodes import hosts
from oddrank.selftest.reach_matrix import (
    NO_ANSWER,
    OTHER,
    REFUSED,
    SILENT,
    UNREACHABLE,
    Failure,
    Judgement,
    Link,
    Node,
)

_WORDS = {
    REFUSED: "refused",
    NO_ANSWER: "no answer, the packets are dropped",
    UNREACHABLE: "unreachable",
    SILENT: "connected, but what was sent did not come back",
    OTHER: "failed",
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
    """Makes the findings of one way's matrix."""
    if judgement.all_closed:
        return [all_closed(network, way, judgement)]
    if judgement.scattered:
        return [scattered(network, way, judgement)]
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
    """Connections of one node fail, and the other nodes reach each other."""
    row, failed = ODD_NODES[odd.how], f"{len(odd.failures)} of {odd.tried}"
    row = row if well > 2 else replace(row, sure=("medium", row.sure[1]))
    seen = network.failures(way, odd.failures)
    found = row.found(network.nodes[odd.node], *seen, over=_over(way), failed=failed, well=well)
    return replace(found, next=network.advice(way, odd.failures[0]))


def broken_link(network: Network, way: str, link: Link) -> Finding:
    """Two nodes can't connect to each other; both reach the others, if there are any."""
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


def all_closed(network: Network, way: str, judgement: Judgement) -> Finding:
    """All attempts fail."""
    seen = network.failures(way, judgement.failures) + _same_addresses(network, way)
    told = {"over": _over(way), "tried": judgement.tried, "ports": network.ports()}
    found = ALL_CLOSED.found(Who("node"), *seen, **told)
    return replace(found, next=found.next + network.advice(way, judgement.failures[0]))


def scattered(network: Network, way: str, judgement: Judgement) -> Finding:
    groups = "; ".join(
        hosts(network.nodes[node] for node in group) for group in judgement.groups[:_SHOWN]
    )
    seen = (Evidence(f"nodes that reach each other: {groups}", "connect"),) if groups else ()
    found = NO_PATTERN.found(
        Who("node"),
        *seen, *network.failures(way, judgement.failures), *_same_addresses(network, way),
        failed=judgement.failed, tried=judgement.tried, over=_over(way),
        how=" between groups of nodes" if groups else " and no node explains them",
    )  # fmt: skip
    return replace(found, next=network.advice(way, judgement.failures[0]))


def no_interface(network: Network, lacking: Sequence[int], variable: str, *, many: bool) -> Finding:
    """A node lacks what the variable names, or many do."""
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
    owners: dict[str, list[int]] = {}
    for node, said in enumerate(network.listening):
        if way in said["ways"]:
            owners.setdefault(said["ways"][way]["address"], []).append(node)
    twins = [(address, nodes) for address, nodes in owners.items() if len(nodes) > 1]
    return tuple(
        Evidence(
            f"{len(nodes)} nodes have the address {address}:"
            f" {hosts(network.nodes[node] for node in nodes)}",
            network.listening[nodes[0]]["ways"][way]["interface"],
        )
        for address, nodes in twins[:_SHOWN]
    )

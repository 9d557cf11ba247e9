"""Findings of the stage reach: one function per cause."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from oddrank.finding import Confidence, Evidence, Finding, Who
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


def odd_node(network: Network, way: str, odd: Node, well: int) -> Finding:
    """Connections of one node fail, and the other nodes reach each other."""
    who = network.nodes[odd.node]
    failed, over = f"{len(odd.failures)} of {odd.tried}", _over(way)
    cause, text = {
        "deaf": (
            "unreachable-node",
            f"can't be reached {over}: {failed} connections to it fail, its own come through",
        ),
        "silent": (
            "node-reaches-nobody",
            f"can't reach the others {over}: {failed} of its connections fail, those to it come"
            " through",
        ),
        "cut off": (
            "node-cut-off",
            f"is cut off {over}: {failed} connections to it and from it fail",
        ),
    }[odd.how]
    return Finding(
        condition="broken",
        who=who,
        cause=cause,
        drains_node=True,
        what=f"{who} {text}",
        evidence=network.failures(way, odd.failures),
        confidence=Confidence(
            "high" if well > 2 else "medium", f"the {well} other nodes reach each other"
        ),
        next=network.advice(way, odd.failures[0]),
    )


def broken_link(network: Network, way: str, link: Link) -> Finding:
    """Two nodes can't connect to each other; both reach the others, if there are any."""
    first, second = (network.nodes[end] for end in link.ends)
    who = Who("link", (*first.ranks, *second.ranks))
    if len(link.failures) == 1:
        node, peer, _ = link.failures[0]
        text = (
            f"{network.nodes[node]} can't connect to {network.nodes[peer]}, only the other way"
            " round,"
        )
    else:
        text = f"{first} and {second} can't connect to each other"
    others = len(network.nodes) - 2
    why = "both reach the other nodes" if others else "with two nodes either end may be at fault"
    return Finding(
        condition="broken",
        who=who,
        cause="one-way-link" if len(link.failures) == 1 else "closed-link",
        what=f"{text} {_over(way)}",
        evidence=network.failures(way, link.failures),
        confidence=Confidence("medium", why),
        next=network.advice(way, link.failures[0]),
    )


def all_closed(network: Network, way: str, judgement: Judgement) -> Finding:
    """All attempts fail: a firewall, or an interface that does not connect the nodes."""
    return Finding(
        who=Who("node"),
        cause="all-closed",
        what=f"no node reaches any other {_over(way)}: the ranks have met by rank 0's port alone",
        evidence=network.failures(way, judgement.failures) + _same_addresses(network, way),
        confidence=Confidence("low", f"all {judgement.tried} attempts failed"),
        next=(
            f"open {network.ports()} between the nodes, or name another interface"
            " (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)",
            *network.advice(way, judgement.failures[0]),
        ),
    )


def scattered(network: Network, way: str, judgement: Judgement) -> Finding:
    """Failures that no node and no few links explain."""
    groups = "; ".join(
        hosts(network.nodes[node] for node in group) for group in judgement.groups[:_SHOWN]
    )
    found = (Evidence(f"nodes that reach each other: {groups}", "connect"),) if groups else ()
    return Finding(
        who=Who("node"),
        cause="no-pattern",
        what=f"{judgement.failed} of {judgement.tried} connections between nodes fail {_over(way)},"
        + (" between groups of nodes" if groups else " and no node explains them"),
        evidence=found + network.failures(way, judgement.failures) + _same_addresses(network, way),
        confidence=Confidence("low", "too few nodes reach each other to name one"),
        next=network.advice(way, judgement.failures[0]),
    )


def no_interface(network: Network, lacking: Sequence[int], variable: str, *, many: bool) -> Finding:
    """A node lacks what the variable names; if many do, the variable is wrong, not the nodes."""
    who, said = network.nodes[lacking[0]], network.listening[lacking[0]]
    value = f"{variable}={said['asked'][variable]}"
    failed = "".join(f"; {at}: {text}" for at, text in [*said["failed"].items()][:_SHOWN])
    has = f"{who.host if many else 'it'} has {', '.join(said['interfaces'])}{failed}"
    where = f"{len(lacking)} of {len(network.nodes)} nodes"
    whom = hosts(network.nodes[node] for node in lacking)
    return Finding(
        condition="unknown" if many else "broken",
        who=Who("node") if many else who,
        cause="no-interface-anywhere" if many else "no-interface",
        what=f"no interface with an address fits {value} on {where}: {whom}"
        if many
        else f"{who} has no interface with an address that fits {value}",
        evidence=(Evidence(has, "interfaces with an address"),),
        confidence=Confidence("low", "half of the nodes or more have none")
        if many
        else Confidence("high", "most nodes have one"),
        next=("ip -br addr" if many else f"ip -br addr  (on {who.host})",),
    )


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

"""Faults of a network of hosts, and the ranks that `bench pairs` must name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from job import Live, Verdict, job
from netns import Network, network

# Mbit/s; so low that even on a busy machine the network is the limit.
RATE = 200.0
# A message takes about 20 ms at that rate; it is four times the burst that netns.py allows.
SIZE = "512K"
COMMAND = ("bench", "pairs", "--size", SIZE)
# Seconds; many times a message's normal latency.
DELAY = 0.005
DEADLINE = 90.0


@dataclass(frozen=True)
class Case:
    """A fault of a network. ends: the ranks that must be named; empty if healthy."""

    fault: str
    ranks: int
    hurt: Callable[[Network], None]
    ends: frozenset[int] = frozenset()
    causes: frozenset[str] = frozenset()
    on_host: int = 1  # ranks
    later: Callable[[Network, Live], None] | None = None  # once the ranks are connected

    @property
    def where(self) -> str:
        at = f", rank {'-'.join(map(str, sorted(self.ends)))}" if self.ends else ""
        return f"{self.ranks} ranks, {self.ranks // self.on_host} hosts{at}"

    stage = "pairs"

    def __str__(self) -> str:
        return f"{self.fault}, {self.where}"

    def run(self) -> Verdict:
        hosts = self.ranks // self.on_host
        with network(hosts, RATE) as net:
            self.hurt(net)
            later = self.later
            return job(
                self.ranks,
                hosts,
                hosts=net.hosts,
                launcher="env",  # torchrun's agents would import torch, too
                command=COMMAND,
                deadline=DEADLINE,
                after=f"connect  {self.ranks}/{self.ranks}",
                act=None if later is None else lambda live: later(net, live),
            )

    def said(self, report: Mapping[str, Any] | None) -> str:
        """Returns "right", or what is wrong with the report."""
        if report is None:
            return "no report"
        named = {rank for found in report["findings"] for rank in found["who"]["ranks"]}
        if not self.ends and report["verdict"] == "healthy":
            return "right"
        if not named:
            return "nobody named"
        if not self.ends or named != self.ends:
            return "wrong name"
        causes = {found["cause"] for found in report["findings"]}
        return "right" if causes <= self.causes else "wrong cause"


def _nothing(net: Network) -> None:
    """A healthy network."""


def healthy(ranks: int, on_host: int = 1) -> Case:
    return Case("healthy", ranks, _nothing, on_host=on_host)


def slow_node(node: int, nodes: int, on_host: int, share: float = 0.6) -> Case:
    """Slows all that a host sends; its ranks share the rest."""

    def hurt(net: Network) -> None:
        net.slow_sender(node, RATE * share)

    ends = frozenset(range(node * on_host, (node + 1) * on_host))
    ranks = nodes * on_host
    return Case("slow sender", ranks, hurt, ends, frozenset({"slow-sender"}), on_host)


def slow_rank(rank: int, nodes: int, on_host: int, share: float = 0.3) -> Case:
    """Slows one rank of a host below its share; the others have the rest."""

    def later(net: Network, live: Live) -> None:
        net.slow_ports(rank // on_host, live.ports_of(rank), RATE * share)

    ranks, causes = nodes * on_host, frozenset({"slow-sender"})
    return Case("slow rank", ranks, _nothing, frozenset({rank}), causes, on_host, later)


def slow_sender(rank: int, ranks: int, share: float = 0.6) -> Case:
    def hurt(net: Network) -> None:
        net.slow_sender(rank, RATE * share)

    # With two ranks only the link can be named, and so both of them.
    ends = frozenset({0, 1}) if ranks == 2 else frozenset({rank})
    cause = "slow-link" if ranks == 2 else "slow-sender"
    return Case("slow sender", ranks, hurt, ends, frozenset({cause}))


def slow_receiver(rank: int, ranks: int, share: float = 0.6) -> Case:
    def hurt(net: Network) -> None:
        net.slow_receiver(rank, RATE * share)

    ends = frozenset({0, 1}) if ranks == 2 else frozenset({rank})
    cause = "slow-link" if ranks == 2 else "slow-receiver"
    return Case("slow receiver", ranks, hurt, ends, frozenset({cause}))


def slow_link(first: int, second: int, ranks: int, share: float = 0.6) -> Case:
    def hurt(net: Network) -> None:
        net.slow_link(first, second, RATE * share)

    return Case("slow link", ranks, hurt, frozenset({first, second}), frozenset({"slow-link"}))


def delayed_link(first: int, second: int, ranks: int) -> Case:
    def hurt(net: Network) -> None:
        net.delay_link(first, second, DELAY)

    return Case(
        "delayed link", ranks, hurt, frozenset({first, second}), frozenset({"delayed-link"})
    )

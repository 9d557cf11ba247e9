"""Faults of a network of hosts, and the ranks that `bench pairs` must name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from job import Live, Verdict, job
from netns import Network, network

# Mbit/s; so low that even on a busy machine the network is the limit.
RATE = 120.0
# A message takes about 35 ms at that rate; it is four times the burst that netns.py allows.
SIZE = "512K"
COMMAND = ("bench", "pairs", "--size", SIZE)
# Seconds; many times a message's normal latency.
DELAY = 0.005
DEADLINE = 90.0
# A run that gets few cores takes longer than it plans: only a hang lasts as long.
LONGEST = 2 * DEADLINE


Hurt = Callable[[Network], None]


@dataclass(frozen=True)
class Case:
    """A fault of a network. ends: the ranks that must be named; empty if healthy."""

    fault: str
    ranks: int
    hurt: Hurt
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
                self.ranks, hosts, hosts=net.hosts, command=COMMAND, deadline=LONGEST,
                launcher="env",  # torchrun's agents would import torch, too
                after=f"connect  {self.ranks}/{self.ranks}",
                act=None if later is None else lambda live: later(net, live),
            )  # fmt: skip

    def said(self, report: Mapping[str, Any] | None) -> str:
        """Returns "right", or the report's error."""
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


def _hurt(fault: str, ranks: int, ends: Sequence[int], *, of: str, by: Hurt) -> Case:
    """Returns the case of one fault, whose cause is `of`."""
    return Case(fault, ranks, by, frozenset(ends), frozenset({of}))


def slow_node(node: int, nodes: int, on_host: int) -> Case:
    """Slows all that a host sends; its ranks share the rest."""
    ends = range(node * on_host, (node + 1) * on_host)
    made = _hurt(
        "slow sender", nodes * on_host, ends, of="slow-sender",
        by=lambda net: net.slow_sender(node, RATE * 0.6),
    )  # fmt: skip
    return replace(made, on_host=on_host)


def slow_rank(rank: int, nodes: int, on_host: int) -> Case:
    """Slows one rank of a host below its share; the others have the rest."""

    def later(net: Network, live: Live) -> None:
        net.slow_ports(rank // on_host, live.ports_of(rank), RATE * 0.3)

    made = _hurt("slow rank", nodes * on_host, [rank], of="slow-sender", by=_nothing)
    return replace(made, on_host=on_host, later=later)


def slow_sender(rank: int, ranks: int) -> Case:
    """Slows a host of one rank. With two ranks only the link can be named, and so both ranks."""
    made = slow_node(rank, ranks, 1)
    if ranks > 2:
        return made
    return replace(made, ends=frozenset({0, 1}), causes=frozenset({"slow-link"}))


def slow_receiver(rank: int, ranks: int) -> Case:
    return _hurt(
        "slow receiver", ranks, [rank], of="slow-receiver",
        by=lambda net: net.slow_receiver(rank, RATE * 0.6),
    )  # fmt: skip


def slow_link(first: int, second: int, ranks: int) -> Case:
    return _hurt(
        "slow link", ranks, [first, second], of="slow-link",
        by=lambda net: net.slow_link(first, second, RATE * 0.6),
    )  # fmt: skip


def delayed_link(first: int, second: int, ranks: int) -> Case:
    return _hurt(
        "delayed link", ranks, [first, second], of="delayed-link",
        by=lambda net: net.delay_link(first, second, DELAY),
    )  # fmt: skip

"""Pairs over NCCL itself: the clock is the GPU's, and both sides make the same runs."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from oddrank.bench.pairs import exchange as exchange_module  # noqa: E402 (after the skip)
from oddrank.bench.pairs.exchange import Effort, Exchange  # noqa: E402
from oddrank.bench.pairs.schedule import Meeting  # noqa: E402
from oddrank.bench.pairs.wire import NativeWire, TorchWire, wire_of  # noqa: E402

DEADLINE = 20
SIZE = 4096
MESSAGE_US, TRIP_US = 12.5, 3.5


class Rank:
    """Replaces a Group and a Native: says numbers, runs links, and notes its runs."""

    seconds = 1.0
    device = torch.device("cpu")

    def __init__(self, rank: int, queues: dict[Any, "SimpleQueue[Any]"]) -> None:
        self.rank, self.queues, self.torch, self.dist = rank, queues, torch, self
        self.runs: list[tuple[int, int, int]] = []

    def send(self, number: Any, peer: int) -> None:
        self.queues["said", self.rank, peer].put(int(number[0]))

    def recv(self, number: Any, peer: int) -> None:
        number[0] = self.queues["said", peer, self.rank].get(timeout=DEADLINE)

    def reserve(self, size: int) -> None:
        assert size >= 2 * SIZE

    def link(self, peer: int, sent: int, received: int) -> Any:
        def block(n: int, *, each: bool, seconds: float) -> tuple[list[float], float]:
            self.queues["run", self.rank, peer].put((sent, received, n))
            mirrored = self.queues["run", peer, self.rank].get(timeout=DEADLINE)
            assert mirrored == (received, sent, n)
            self.runs.append((sent, received, n))
            us = TRIP_US if sent and received else MESSAGE_US
            return ([us + i for i in range(n)] if each else []), us

        return SimpleNamespace(block=block)


def meet(effort: Effort) -> tuple[dict[int, tuple[list[float], list[float]]], list[Rank]]:
    """Lets two ranks meet: (rank -> what it measured, ranks)."""
    queues: dict[Any, SimpleQueue[Any]] = {
        (what, a, 1 - a): SimpleQueue() for what in ("said", "run") for a in (0, 1)
    }
    ranks = [Rank(rank, queues) for rank in (0, 1)]
    found: dict[int, tuple[list[float], list[float]]] = {}

    def run(rank: Rank) -> None:
        context: Any = SimpleNamespace(step=lambda text, waiting=False: None)
        group: Any = rank
        exchange = Exchange(context, group, effort, NativeWire(group, group, effort.size))
        found[rank.rank] = exchange.meet(Meeting(1 - rank.rank, rank.rank == 0), shared=False)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in ranks]
    with ExitStack() as stack:
        for thread in threads:
            thread.start()
            stack.callback(thread.join, DEADLINE)
    return found, ranks


def test_rates_and_latencies_are_the_gpu_s_whatever_the_host_takes():
    found, ranks = meet(Effort(SIZE, enough=0.5, seconds=0.05, fewest=3))
    for rank in (0, 1):
        rates, latency = found[rank]
        assert rates
        assert all(rate == pytest.approx(SIZE / MESSAGE_US / 1e3) for rate in rates)
        assert bool(latency) == (rank == 0)
    assert set(found[0][1]) == {TRIP_US}
    # A repeat is as long as 20 ms of messages, or as many as a wire sends at a time.
    assert max(n for sent, received, n in ranks[0].runs if not sent) == NativeWire.most
    assert [run for run in ranks[0].runs] == [(b, a, n) for a, b, n in ranks[1].runs]


class Clock:
    """Replaces time: only a message of NCCL takes any, also the one before those that count."""

    now = 0.0
    monotonic = perf_counter = classmethod(lambda cls: cls.now)


def test_a_rate_that_ranks_share_counts_every_message_that_moved(monkeypatch):
    """With few messages in a repeat the one beside them weighs most."""
    seconds = 0.006

    def block(n: int, *, each: bool, seconds_: float = seconds, **_: float) -> Any:
        Clock.now += (n + 1) * seconds_
        return [], seconds_ * 1e6

    made = SimpleNamespace(
        seconds=1.0, reserve=lambda size: None, link=lambda *_: SimpleNamespace(block=block)
    )
    group: Any = SimpleNamespace(
        torch=torch, dist=SimpleNamespace(send=lambda number, peer: None),
        barrier=lambda: None, largest=lambda values: values,
    )  # fmt: skip
    context: Any = SimpleNamespace(step=lambda text, waiting=False: None)
    monkeypatch.setattr(exchange_module, "time", Clock)
    wire: Any = NativeWire(group, made, SIZE)
    one = Exchange(context, group, Effort(SIZE, enough=0.5, seconds=1.0, fewest=3), wire)
    rates = one._share(1, sends=False)
    assert rates
    assert rates == [pytest.approx(SIZE / seconds / 1e9)] * len(rates)


class Few:
    """A group of one rank, that has a GPU or none."""

    world, rank = 1, 0
    torch, dist = torch, None

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    def smallest(self, values: list[float]) -> list[float]:
        return values


def test_on_the_cpu_messages_go_over_torch():
    context: Any = SimpleNamespace(scratch={})
    group: Any = Few("cpu")
    assert isinstance(wire_of(context, group, 8), TorchWire)


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    from oddrank import _native

    def has(module: Any) -> None:
        made = SimpleNamespace(module=module, reason="nvcc was not found")
        monkeypatch.setattr(_native, "cuda_part", lambda: made)

    return has


def test_on_gpus_nccl_itself_moves_them_where_every_rank_can(part: Callable[[Any], None]):
    made = SimpleNamespace(reserve=lambda size: None, seconds=1.0)
    context: Any = SimpleNamespace(scratch={"pairs over NCCL": made})
    group: Any = Few("meta")
    group.device = SimpleNamespace(type="cuda", index=0)
    part(SimpleNamespace(nccl_obstacle=lambda: ""))
    assert isinstance(wire_of(context, group, 8), NativeWire)
    group.smallest = lambda values: [0.0]  # another rank can't
    group.device = torch.device("meta")
    assert isinstance(wire_of(context, group, 8), TorchWire)


@pytest.mark.parametrize("module", [None, SimpleNamespace(nccl_obstacle=lambda: "set: unset it")])
def test_without_the_part_cuda_torch_moves_them_on_gpus_too(part: Any, module: Any):
    part(module)
    told: list[float] = []
    group: Any = Few("meta")

    def smallest(values: list[float]) -> list[float]:
        told.extend(values)
        group.device = torch.device("meta")
        return values

    group.smallest, group.device = smallest, SimpleNamespace(type="cuda", index=0)
    context: Any = SimpleNamespace(scratch={})
    assert isinstance(wire_of(context, group, 8), TorchWire)
    assert told == [0.0]

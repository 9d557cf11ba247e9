"""Pairs exchange messages: no rank disturbs another, and over NCCL the clock is the GPU's."""

import threading
import time
from contextlib import ExitStack
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from oddrank import _native  # noqa: E402 (after the skip)
from oddrank.bench.pairs import exchange as exchange_module  # noqa: E402
from oddrank.bench.pairs.exchange import Effort, Exchange, NativeWire, TorchWire, wire_of  # noqa: E402
from oddrank.bench.pairs.schedule import Game, Meeting  # noqa: E402
from patience import PATIENCE  # noqa: E402

SMALL, SIZE = 8, 4096
MESSAGE_US, TRIP_US = 12.5, 3.5


class Context:
    """Counts steps; all ranks must make the same number."""

    def __init__(self):
        self.steps, self.scratch = 0, {}

    def step(self, text, waiting=False):
        self.steps += 1


def meet(ranks, exchanges, meetings, shared):
    """Lets all ranks meet at once, each in a thread; returns what each measured."""
    found = {}

    def run(rank):
        found[rank] = exchanges[rank].meet(meetings[rank], shared)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    with ExitStack() as stack:
        for thread in threads:
            thread.start()
            stack.callback(thread.join, PATIENCE.limit)
    return found


class Network:
    """Ranks as threads. log: (bytes, sender, first figure) of each message."""

    def __init__(self, ranks, slow):
        self.queues = {(a, b): SimpleQueue() for a in range(ranks) for b in range(ranks)}
        self.all = threading.Barrier(ranks, timeout=PATIENCE.limit)
        self.said = [0.0] * ranks
        self.slow, self.log = slow, []

    def data_of(self, senders):
        """Returns the log positions of these ranks' large messages."""
        sent = enumerate(self.log)
        return [place for place, (size, own, _) in sent if size > SMALL and own in senders]


class Rank:
    """Replaces a Group and its backend."""

    isend, irecv = "send", "receive"

    def __init__(self, network, rank):
        self.torch, self.device, self.dist = torch, torch.device("cpu"), self
        self.network, self.rank = network, rank
        self.context = Context()

    def barrier(self):
        self.context.step("barrier")
        self.network.all.wait()

    def largest(self, values):
        self.barrier()
        self.network.said[self.rank] = values[0]
        self.barrier()
        return [max(self.network.said)]

    def synchronize(self):
        pass

    def P2POp(self, operation, tensor, peer):
        return operation, tensor, peer

    def batch_isend_irecv(self, operations):
        for operation, tensor, peer in operations:
            if operation == self.irecv:
                tensor.copy_(self.network.queues[peer, self.rank].get(timeout=PATIENCE.limit))
                continue
            if {self.rank, peer} == self.network.slow:
                time.sleep(0.001)
            self.network.log.append((tensor.nbytes, self.rank, int(tensor[0])))
            self.network.queues[self.rank, peer].put(tensor.clone())
        return []


def test_ranks_of_a_node_share_its_network_so_none_moves_data_while_another_measures_latency():
    """Nodes of four and three ranks, with a slow link 0-4."""
    game = Game("nodes", [(0, 1, 2, 3), (4, 5, 6)])
    network = Network(7, slow={0, 4})
    ranks = [Rank(network, rank) for rank in range(7)]
    effort = Effort(1024, enough=0.5, seconds=0.05, fewest=2)
    exchanges = [Exchange(r.context, r, effort, TorchWire(r, effort.size)) for r in ranks]
    meet(7, exchanges, [game.meetings(rank, 0)[0] for rank in range(7)], game.shared)
    # No data moves before the slowest pair knows its latency.
    over = [network.log.index((SMALL, asks, 0)) for asks in (0, 1, 2)]
    assert max(over) < min(network.data_of(range(7)))
    # No data moves back before the slowest has sent its own.
    assert max(network.data_of([0, 1, 2])) < min(network.data_of([4, 5, 6]))
    assert len({rank.context.steps for rank in ranks}) == 1, "also the rank that rests"


class OnGpu:
    """Replaces a Group and a Native: says numbers, runs links, and notes its runs."""

    seconds, device = 1.0, torch.device("cpu")

    def __init__(self, rank, queues):
        self.rank, self.queues, self.torch, self.dist = rank, queues, torch, self
        self.runs = []

    def send(self, number, peer):
        self.queues["said", self.rank, peer].put(int(number[0]))

    def recv(self, number, peer):
        number[0] = self.queues["said", peer, self.rank].get(timeout=PATIENCE.limit)

    def reserve(self, size):
        assert size >= 2 * SIZE

    def link(self, peer, sent, received):
        def block(n, *, each, seconds):
            self.queues["run", self.rank, peer].put((sent, received, n))
            mirrored = self.queues["run", peer, self.rank].get(timeout=PATIENCE.limit)
            assert mirrored == (received, sent, n)
            self.runs.append((sent, received, n))
            us = TRIP_US if sent and received else MESSAGE_US
            return ([us + i for i in range(n)] if each else []), us

        return SimpleNamespace(block=block)


def test_rates_and_latencies_are_the_gpu_s_whatever_the_host_takes():
    effort = Effort(SIZE, enough=0.5, seconds=0.05, fewest=3)
    queues = {(what, a, 1 - a): SimpleQueue() for what in ("said", "run") for a in (0, 1)}
    ranks = [OnGpu(rank, queues) for rank in (0, 1)]
    exchanges = [Exchange(Context(), r, effort, NativeWire(r, r, SIZE)) for r in ranks]
    found = meet(2, exchanges, [Meeting(1, True), Meeting(0, False)], shared=False)
    for rank in (0, 1):
        rates, latency = found[rank]
        assert rates
        assert all(rate == pytest.approx(SIZE / MESSAGE_US / 1e3) for rate in rates)
        assert bool(latency) == (rank == 0)
    assert set(found[0][1]) == {TRIP_US}
    # A repeat is as long as 20 ms of messages, or as many as a wire sends at a time.
    assert max(n for sent, _, n in ranks[0].runs if not sent) == NativeWire.most
    assert ranks[0].runs == [(b, a, n) for a, b, n in ranks[1].runs]


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

    def __init__(self, others_can=True):
        self.device = SimpleNamespace(type="cuda", index=0)
        self.others_can, self.said = others_can, []

    def smallest(self, values):
        self.said += values
        self.device = torch.device("meta")
        return values if self.others_can else [0.0]


def test_messages_go_over_nccl_itself_on_gpus_where_every_rank_can_and_else_over_torch(monkeypatch):
    can, set_to = (SimpleNamespace(nccl_obstacle=lambda why=why: why) for why in ("", "unset it"))
    for module, others_can, said, wire in (
        (can, True, [1.0], NativeWire),
        (can, False, [1.0], TorchWire),
        (set_to, True, [0.0], TorchWire),
        (None, True, [0.0], TorchWire),  # without the part cuda
    ):
        part = SimpleNamespace(module=module, reason="nvcc was not found")
        monkeypatch.setattr(_native, "cuda_part", lambda part=part: part)
        group: Any = Few(others_can)
        context: Any = Context()
        context.scratch = {"pairs over NCCL": SimpleNamespace(reserve=lambda size: None, seconds=1)}
        assert isinstance(wire_of(context, group, 8), wire), (module, others_can)
        assert group.said == said
    group.device = torch.device("cpu")
    assert isinstance(wire_of(context, group, 8), TorchWire)

"""Ranks of a node share its network: none moves data while another measures latency."""

import threading
import time
from contextlib import ExitStack
from queue import SimpleQueue

import pytest

torch = pytest.importorskip("torch")

from oddrank.bench.pairs.exchange import Effort, Exchange  # noqa: E402 (after the skip)
from oddrank.bench.pairs.schedule import Game  # noqa: E402
from oddrank.bench.pairs.wire import TorchWire  # noqa: E402

SMALL = 8
DEADLINE = 20


class Context:
    """Counts steps; all ranks must make the same number."""

    def __init__(self):
        self.steps = 0

    def step(self, text, waiting=False):
        self.steps += 1


class Network:
    """Ranks as threads. log: (bytes, sender, first figure) of each message."""

    def __init__(self, ranks, slow):
        self.queues = {(a, b): SimpleQueue() for a in range(ranks) for b in range(ranks)}
        self.all = threading.Barrier(ranks, timeout=DEADLINE)
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
                tensor.copy_(self.network.queues[peer, self.rank].get(timeout=DEADLINE))
                continue
            if {self.rank, peer} == self.network.slow:
                time.sleep(0.001)
            self.network.log.append((tensor.nbytes, self.rank, int(tensor[0])))
            self.network.queues[self.rank, peer].put(tensor.clone())
        return []

    def exchange(self, effort):
        return Exchange(self.context, self, effort, TorchWire(self, effort.size))


@pytest.fixture
def met():
    """Lets nodes of four and three ranks measure, with a slow link 0-4: (network, ranks)."""
    game = Game("nodes", [(0, 1, 2, 3), (4, 5, 6)])
    network = Network(7, slow={0, 4})
    ranks = [Rank(network, rank) for rank in range(7)]
    effort = Effort(1024, enough=0.5, seconds=0.05, fewest=2)

    def run(rank):
        (meeting,) = game.meetings(rank.rank, 0)
        rank.exchange(effort).meet(meeting, game.shared)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in ranks]
    with ExitStack() as stack:
        for thread in threads:
            thread.start()
            stack.callback(thread.join, DEADLINE)
    return network, ranks


def test_no_data_moves_before_the_slowest_pair_knows_its_latency(met):
    network, _ = met
    over = [network.log.index((SMALL, asks, 0)) for asks in (0, 1, 2)]
    assert max(over) < min(network.data_of(range(7)))


def test_no_data_moves_back_before_the_slowest_has_sent_its_own(met):
    network, _ = met
    assert max(network.data_of([0, 1, 2])) < min(network.data_of([4, 5, 6]))


def test_all_make_as_many_marks_also_who_rests(met):
    _, ranks = met
    assert len({rank.context.steps for rank in ranks}) == 1

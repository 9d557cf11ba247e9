"""All ranks obey an order after the same step, in whatever order their threads run."""

import random
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from oddrank.job_store import JobStore, _OwnMemory
from oddrank.switches import agreement
from oddrank.switches.agreement import ASKED, Agreement, Root, SwitchError, Wanted
from patience import PATIENCE, until


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(agreement, "_EVERY", 1e-3)


def wanted(word, number=0):
    return Wanted(word, word, f"order {number}")


@dataclass
class Ranks:
    """Ranks that share a store in memory. orders: of rank 0. obeyed: (step, word) of each."""

    world: int
    orders: list[Wanted] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.memory = _OwnMemory()
        stores = [JobStore(self.memory, rank, self.world, "") for rank in range(self.world)]
        self.each = [Agreement(store) for store in stores]
        self.root = Root(self.each[0], lambda: self.orders, self.told.append)
        self.obeyed = [[] for _ in stores]

    def turn(self, rank):
        if rank == 0:
            self.root.turn()
        self.each[rank].turn()

    def turns(self, *ranks):
        for rank in ranks or range(self.world):
            self.turn(rank)

    def poll(self, rank):
        one = self.each[rank]
        word = one.poll()
        if word:
            self.obeyed[rank].append((one.steps, word))

    def would_wait(self, rank):
        """Returns whether poll() would wait for another thread."""
        one = self.each[rank]
        return one.state == ASKED and one.steps + 1 >= one._look_at

    @contextmanager
    def training(self):
        """Each rank trains in a thread, at its own speed."""
        over = threading.Event()

        def trains(rank):
            while not over.wait(1e-3 + rank * 2e-4):
                self.poll(rank)

        jobs = [threading.Thread(target=trains, args=(rank,)) for rank in range(self.world)]
        for job in jobs:
            job.start()
        try:
            yield over
        finally:
            over.set()
            for job in jobs:
                job.join(PATIENCE.limit)


def test_in_any_order_of_turns_and_steps_all_ranks_obey_after_the_same_step(monkeypatch):
    for seed in range(60):
        chance = random.Random(seed)
        monkeypatch.setattr(Agreement, "_ahead", lambda self, chance=chance: chance.randint(1, 6))
        ranks = Ranks(world=chance.choice([1, 2, 3, 5]))
        speed = [chance.choice([0.05, 0.3, 1.0]) for _ in ranks.each]
        for number in range(5):
            ranks.orders = [wanted(chance.choice(["save", "kill"]), number)]
            for _ in range(20_000):
                rank = chance.randrange(ranks.world)
                if chance.random() < 0.3:
                    ranks.turn(rank)
                elif len(ranks.obeyed[rank]) > number:
                    continue  # it saves, and waits there for the others
                elif chance.random() < speed[rank] and not ranks.would_wait(rank):
                    ranks.poll(rank)
                if all(len(one) == number + 1 for one in ranks.obeyed):
                    break
        assert len(ranks.obeyed[0]) == 5, seed
        assert all(one == ranks.obeyed[0] for one in ranks.obeyed), seed


@pytest.fixture
def eager_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_ranks_in_threads_that_train_at_other_speeds_obey_after_the_same_step(eager_threads):
    ranks = Ranks(world=4)

    def agrees(rank):
        while not over.wait(1e-3):
            ranks.turn(rank)

    with ranks.training() as over:
        jobs = [threading.Thread(target=agrees, args=(rank,)) for rank in range(4)]
        for job in jobs:
            job.start()
        for number in range(8):
            ranks.orders = [wanted("save", number)]
            until(lambda: all(len(one) == number + 1 for one in ranks.obeyed))  # noqa: B023
        # A thread that gets no core for a while is behind until then.
        until(lambda: ranks.each[0].steps > ranks.each[3].steps)
    for job in jobs:
        job.join(PATIENCE.limit)
    assert all(one == ranks.obeyed[0] for one in ranks.obeyed)


def test_without_an_answer_nothing_happens_and_the_missing_rank_is_named(monkeypatch):
    monkeypatch.setattr(agreement, "_ANSWERS_SECONDS", 0.05)
    ranks = Ranks(world=3, orders=[wanted("save")])
    until(lambda: ranks.turns(0, 1) or ranks.told)  # rank 2 is stopped
    assert ranks.told == ["not agreed: save: rank 2 did not answer within 0.056 s"]
    assert ranks.root.state == "no agreement: rank 2 did not answer"
    for rank in (0, 1):
        ranks.turn(rank)
        for _ in range(10_000):
            assert not ranks.would_wait(rank)
            ranks.poll(rank)
    assert ranks.obeyed == [[], [], []]


def test_a_rank_that_has_closed_its_switch_ends_the_order_at_once():
    ranks = Ranks(world=2, orders=[wanted("save")])
    ranks.each[1].store.count("closed", 1)
    until(lambda: ranks.turn(0) or ranks.told)
    assert ranks.told == ["not agreed: save: rank 1 closed the switch"]


def test_an_order_that_was_not_agreed_is_tried_again(monkeypatch):
    monkeypatch.setattr(agreement, "_ANSWERS_SECONDS", 0.01)
    monkeypatch.setattr(agreement, "_AGAIN_SECONDS", 0.02)
    ranks = Ranks(world=2, orders=[wanted("save")])
    until(lambda: ranks.turn(0) or ranks.told)
    monkeypatch.setattr(agreement, "_ANSWERS_SECONDS", 60.0)

    def once():
        ranks.turns()
        for rank in (0, 1):
            if not ranks.would_wait(rank):
                ranks.poll(rank)
        return all(ranks.obeyed)

    until(once)
    assert ranks.obeyed[0] == ranks.obeyed[1]


def test_a_rank_that_loses_the_store_raises_an_error_if_it_waits_and_goes_on_without_an_order():
    ranks = Ranks(world=2, orders=[wanted("save")])
    ranks.each[1].fail("the store is gone")
    ranks.poll(1)
    ranks.turns()
    lost = ranks.each[1]
    threading.Timer(0.05, lost.fail, ["the store is gone"]).start()
    with pytest.raises(SwitchError, match=r"rank 1 can't know .* order to save: the store is gone"):
        until(lost.poll)
    assert ranks.obeyed == [[], []]


def test_rank_0_says_who_was_behind():
    ranks = Ranks(world=3)
    for _ in range(7):
        ranks.poll(0)
        ranks.poll(1)
    ranks.orders = [wanted("kill")]
    until(lambda: ranks.turns() or ranks.told)
    assert ranks.told[0].startswith("kill: all 3 ranks obey after call ")
    assert ranks.told[0].endswith(" of poll(); ranks were at calls 0 (rank 2) to 7")

"""The judge's join, and its walk over stages; the test plays the guards."""

import threading
import time

import pytest

from control import wire_peer as wire
from control.test_hub import Hub
from oddrank.control import walk as walk_
from oddrank.control.root import RankState
from oddrank.control.stages import RunState, Stage
from oddrank.control.walk import Outcome, Walk, judge_join
from patience import until

SIGINT, UNINTERRUPTIBLE = 2, 4


class Judge:
    """Walks over stages in a thread."""

    def __init__(self, hub: Hub, *stages: str) -> None:
        table = [Stage(name, 100, lambda context: 1) for name in stages]
        self._walk = Walk(hub.root, table, time.monotonic() + 100, None)
        self._seen: list[Outcome] = []
        self._thread = threading.Thread(target=self._walk.judge, args=(self._conclude,))
        self._thread.start()

    def _conclude(self, outcome: Outcome) -> int:
        self._seen.append(outcome)
        return 0

    def outcome(self) -> Outcome:
        self._thread.join(110)
        (seen,) = self._seen
        return seen


def test_a_rank_inside_the_kernel_does_not_make_the_judge_deaf_to_a_signal():
    hub = Hub(2, silence_ms=60_000)
    judge = Judge(hub, "first", "second")
    peers = [hub.join(rank) for rank in range(2)]
    for rank, peer in enumerate(peers):
        peer.expect(wire.GO)
        life = UNINTERRUPTIBLE if rank == 1 else 0
        peer.send(wire.state(1, life=life, terminated=SIGINT)).send(wire.result(1, b"1"))
    outcome = judge.outcome()
    assert list(outcome.came) == ["join", "first"]
    assert outcome.why.startswith("SIGINT ended the job after stage first")


def test_a_result_that_comes_while_the_judge_waits_for_silent_guards_counts(monkeypatch):
    hub = Hub(3, silence_ms=60_000)
    judge = Judge(hub, "first")
    quick, lost, slow = (hub.join(rank, node=rank) for rank in range(3))
    for peer in (quick, lost, slow):
        peer.expect(wire.GO)
        peer.send(wire.state(1))
    judged = walk_.culprits

    def then_the_slow_one_comes(round):
        slow.send(wire.result(1, b"1"))
        until(lambda: hub.native.result_count() == 2)
        monkeypatch.setattr(walk_, "culprits", judged)
        return judged(round)

    monkeypatch.setattr(walk_, "culprits", then_the_slow_one_comes)
    quick.send(wire.result(1, b"1"))
    until(lambda: hub.native.result_count() == 1)
    lost.socket.close()
    outcome = judge.outcome()
    assert [(f.cause, f.who.ranks) for f in outcome.findings] == [("node-lost", (1,))]
    assert outcome.came["first"] == 2
    assert not any("rank 2" in one.text for one in outcome.findings[0].evidence)


# Two ranks of a host with one local rank: the rank that deviates is named, not the other one.


def misplaced(*local_ranks, nodes=1):
    """Returns the ranks named for these local ranks, spread over nodes in equal blocks."""
    here = len(local_ranks) // nodes
    states = {
        rank: RankState(rank, f"node{rank // here}", rank // here, local, contact="ok")
        for rank, local in enumerate(local_ranks)
    }
    return [f.who.ranks for f in judge_join(RunState(len(local_ranks), states))]


@pytest.mark.parametrize(
    ("local_ranks", "nodes", "named"),
    [
        ([0, 1, 2, 3], 1, []),
        ([0, 1, 0, 1], 2, []),
        ([0, 1, 1, 3], 1, [(2,)]),
        ([0, 0, 2, 3], 1, [(1,)]),
        ([1, 1], 1, [(0,)]),
        ([0, 1, 1, 1], 2, [(2,)]),
        ([0, 0, 0, 0], 1, [(1,), (2,), (3,)]),
        ([1, 0, 2, 3], 1, []),  # another order is unusual but harmless
    ],
)
def test_who_has_anothers_local_rank_is_named(local_ranks, nodes, named):
    assert misplaced(*local_ranks, nodes=nodes) == named


def test_ranks_dealt_out_to_the_hosts_in_turn_are_in_their_places():
    states = {
        rank: RankState(rank, f"node{rank % 2}", rank % 2, rank // 2, contact="ok")
        for rank in range(4)
    }
    assert judge_join(RunState(4, states)) == []

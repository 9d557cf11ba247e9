"""Who differs from most ranks: by majority, and nobody where there is none."""

import pytest

from oddrank.control.root import RankState
from oddrank.control.stages import Rounds
from oddrank.selftest.choice import Options
from oddrank.selftest.stages import environment

FACTS = {
    "hostname": "node0", "python": "3.11.2", "torch": "2.13.0", "oddrank": "0.1.0", "cuda": None,
    "nccl": None, "driver": None, "machine": "x86_64", "kernel": "6.1", "gpus": 0,
    "local_world": 2, "shm_bytes": 1 << 30, "shm_free": 1 << 29, "nofile": "1024/4096",
    "memlock": "unlimited/unlimited", "stack": "8/unlimited", "core": "0/unlimited",
}  # fmt: skip


def judged(*changes, ranks=4):
    """(condition, kind, ranks, cause) of each finding; changes: (ranks, facts)."""
    facts = {rank: dict(FACTS) for rank in range(ranks)}
    for who, changed in changes:
        for rank in who:
            facts[rank].update(changed)
    states = {
        r: RankState(r, host=f"node{r // 2}", node=r // 2, local_rank=r % 2, contact="ok")
        for r in range(ranks)
    }
    rounds = Rounds(ranks, states, {"environment": facts})
    found = environment.stage(Options()).judge(rounds)
    return [(f.condition, f.who.kind, f.who.ranks, f.cause) for f in found]


def test_equal_ranks_have_no_finding():
    assert judged() == []


@pytest.mark.parametrize("name", ["python", "torch", "oddrank", "cuda", "nccl", "driver"])
def test_another_version_is_different(name):
    assert judged(((2,), {name: "9.9"})) == [("different", "rank", (2,), "other-version")]


@pytest.mark.parametrize("name", ["shm_bytes", "nofile", "memlock", "stack", "core"])
def test_another_limit_is_suspicious(name):
    assert judged(((1,), {name: "7"})) == [("suspicious", "rank", (1,), "other-setting")]


@pytest.mark.parametrize("name", ["hostname", "shm_free", "kernel"])
def test_what_may_differ_is_not_judged(name):
    assert judged(((1,), {name: "other"})) == []


def test_sizes_that_differ_by_pages_are_alike():
    assert judged(((0, 1), {"shm_bytes": (1 << 30) - 4096}), ((3,), {"shm_bytes": 1 << 30})) == []
    assert judged(((2,), {"shm_bytes": 64 << 20})) == [
        ("suspicious", "rank", (2,), "other-setting")
    ]


def test_a_whole_node_is_named_as_a_node():
    assert judged(((4, 5), {"torch": "2.11.0"}), ranks=6) == [
        ("different", "node", (4, 5), "other-version")
    ]


@pytest.mark.parametrize("ranks", [2, 4])
def test_without_a_majority_nobody_is_named(ranks):
    half = tuple(range(ranks // 2))
    found = judged((half, {"torch": "2.11.0"}), ranks=ranks)
    assert [(condition, who) for condition, _, who, _ in found] == [("unknown", ())]


def test_each_deviating_value_is_a_finding_of_its_own():
    found = judged(((0,), {"torch": "1"}), ((1,), {"torch": "2"}), ranks=5)
    assert sorted(who for _, _, who, _ in found) == [(0,), (1,)]

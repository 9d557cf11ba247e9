"""How much memory a rank takes for its test: what host, cgroup and neighbours allow."""

from types import SimpleNamespace

import pytest

from oddrank import MissingPartError, _native
from oddrank.bench.place import CPU, GPU
from oddrank.control.root import RankState
from oddrank.control.stages import Rounds
from oddrank.selftest import device
from oddrank.selftest.choice import Options
from oddrank.selftest.stages import device as stage

MIB = 1 << 20


@pytest.mark.parametrize(
    ("free", "ranks", "expected"),
    [(8192, 1, 64), (1024, 1, 64), (1024, 8, 32), (100, 2, 12), (8, 64, 1), (0, 4, 1)],
)
def test_a_quarter_of_what_is_free_is_shared_by_the_ranks_of_the_host(
    monkeypatch, free, ranks, expected
):
    monkeypatch.setattr(device, "free_host_memory", lambda: free * MIB)
    here = SimpleNamespace(local_world=ranks)
    assert device.memory_to_verify(CPU, here) == expected * MIB


def test_a_full_test_takes_more_of_the_host(monkeypatch):
    monkeypatch.setattr(device, "free_host_memory", lambda: 8192 * MIB)
    here = SimpleNamespace(local_world=2)
    assert device.memory_to_verify(CPU, here, full=True) == 512 * MIB
    here.local_world = 16
    assert device.memory_to_verify(CPU, here, full=True) == 128 * MIB


@pytest.mark.parametrize(
    ("level", "kind", "thorough"),
    [
        ("quick", GPU, False), ("normal", GPU, True), ("full", GPU, True),
        ("quick", CPU, False), ("normal", CPU, False), ("full", CPU, True),
    ],
)  # fmt: skip
def test_all_patterns_are_written_where_they_take_no_time_or_that_is_asked_for(
    monkeypatch, level, kind, thorough
):
    asked = {}
    monkeypatch.setattr(device, "memory_to_verify", lambda *a, full: asked.update(full=full) or MIB)
    monkeypatch.setattr(device, "verify", lambda *a, thorough: asked.update(thorough=thorough))
    context = SimpleNamespace(launch=None, parameters=kind, step=lambda text: None)
    stage.stage(Options(level)).measure(context)
    assert asked == {"full": level == "full", "thorough": thorough}


def test_a_word_that_came_back_wrong_is_a_finding_against_its_rank():
    wrong = _native.core().verify_host_memory(MIB, 7, damage=1000)["mismatches"]
    states = {r: RankState(r, host="node0", node=0, local_rank=r, contact="ok") for r in (0, 1)}
    result = {"device": "CPU", "bytes": MIB, "wrong": None}
    results = {0: result, 1: {**result, "wrong": wrong}}
    (finding,) = stage.stage(Options()).judge(Rounds(2, states, {"device": results}))
    assert (finding.condition, finding.cause) == ("broken", "bad-memory")
    assert finding.who.ranks == (1,)
    assert "at 1000" in finding.evidence[0].text
    assert "(pattern random); wrong bits in all of them: 0" in finding.evidence[0].text


def test_a_gpu_without_the_part_that_tests_it_is_no_verdict():
    facts = {"gpus": 1, "local_world": 1, "gpu_id": "a", "cuda_part": "_cuda: no nvcc. Type this"}
    with pytest.raises(MissingPartError, match="rank 0 has a GPU to test, and no _cuda: no nvcc"):
        device.plan(Rounds(1, {}, {"environment": {0: facts}}))

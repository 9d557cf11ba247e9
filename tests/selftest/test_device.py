"""The memory that a rank takes for its test: limited by host, cgroup and other ranks."""

from types import SimpleNamespace

import pytest

from job import job
from oddrank import _native
from oddrank.control.root import RankState
from oddrank.control.stages import RunState, Skip
from oddrank.machine.device import CPU, GPU
from oddrank.selftest import Options
from oddrank.selftest.stages import device, environment

MIB = 1 << 20


@pytest.mark.parametrize(
    ("free", "ranks", "expected"),
    [(8192, 1, 64), (1024, 1, 64), (1024, 8, 32), (100, 2, 12), (8, 64, 1), (0, 4, 1)],
)
def test_a_quarter_of_what_is_free_is_shared_by_the_ranks_of_the_host(
    monkeypatch, free, ranks, expected
):
    monkeypatch.setattr("oddrank.machine.device.free_host_memory", lambda: free * MIB)
    here = SimpleNamespace(local_world=ranks)
    assert device.memory_to_verify(CPU, here) == expected * MIB


def test_a_full_test_takes_more_of_the_host(monkeypatch):
    monkeypatch.setattr("oddrank.machine.device.free_host_memory", lambda: 8192 * MIB)
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
    device.stage(Options(level)).measure(context)
    assert asked == {"full": level == "full", "thorough": thorough}


def test_a_word_that_came_back_wrong_is_a_finding_against_its_rank():
    wrong = _native.core().verify_host_memory(MIB, 7, damage=1000)["mismatches"]
    states = {r: RankState(r, host="node0", node=0, local_rank=r, contact="ok") for r in (0, 1)}
    result = {"device": "CPU", "bytes": MIB, "wrong": None}
    results = {0: result, 1: {**result, "wrong": wrong}}
    (finding,) = device.stage(Options()).conclude(RunState(2, states, {"device": results}))
    assert (finding.condition, finding.cause) == ("broken", "bad-memory")
    assert finding.who.ranks == (1,)
    assert "at 1000" in finding.evidence[0].text
    assert "(pattern random); wrong bits in all of them: 0" in finding.evidence[0].text


def on_gpus(lacking, ranks=4):
    states = {r: RankState(r, "node0", 0, r, contact="ok") for r in range(ranks)}
    facts = {
        r: {"gpus": ranks, "local_world": ranks, "gpu_id": None, "cuda_part": why}
        for r in range(ranks)
        for why in ["_cuda: no nvcc. Type this" if r in lacking else ""]
    }
    return RunState(ranks, states, {"environment": facts})


@pytest.mark.parametrize("odd", [0, 3])
def test_the_rank_without_the_part_that_tests_its_gpu_is_different(odd):
    run = on_gpus({odd})
    (found,) = environment.stage(Options()).conclude(run)
    assert (found.condition, found.cause) == ("different", "cuda-part-missing")
    assert found.who.ranks == (odd,)
    assert "_cuda: no nvcc" in found.what
    assert device.plan(run) == Skip(f"rank {odd} without the part _cuda")
    assert device.backend(run) == "nccl"


def test_a_part_that_no_rank_has_sets_none_apart():
    (found,) = environment.stage(Options()).conclude(on_gpus(range(4)))
    assert (found.condition, found.who.ranks) == ("unknown", ())


@pytest.mark.needs("torch")
def test_in_a_real_job_a_rank_without_the_part_is_named_with_what_was_found_before():
    inject = [f"set:rank={rank},stage=environment,name=gpus,value=8" for rank in range(3)]
    inject += [
        "set:rank=1,stage=environment,name=cuda_part,value=_cuda: no nvcc",
        "set:rank=2,stage=environment,name=torch,value=1.0",
    ]
    # Without connect, which would use the GPUs that these ranks only claim to have.
    only = "device,speed,fingerprint,health"
    verdict = job(3, inject=";".join(inject), command=("selftest", "--only", only), deadline=60)
    causes = {f["cause"]: f["who"]["ranks"] for f in verdict.report["findings"]}
    assert causes["cuda-part-missing"] == [1], str(verdict)
    assert causes["other-version"] == [2]
    skipped = verdict.report["data"]["skipped"]
    for name in only.split(","):
        assert skipped[name] == "rank 1 without the part _cuda"
    assert verdict.gone()

"""The memory that a rank takes for its test: limited by host, cgroup and other ranks."""

from itertools import product
from types import SimpleNamespace

import pytest

from job import job
from made_up import context, run_by_rank
from oddrank import OddrankError, _native
from oddrank.control.stages import Skip
from oddrank.machine.device import CPU, GPU
from oddrank.selftest import Options
from oddrank.selftest.stages import device, environment
from selftest.said import check

MIB = 1 << 20
LEVELS = ("quick", "normal", "full")
RESULT = {"device": "GPU", "bytes": 72 << 30, "total": 80 << 30, "patterns": 6, "wrong": None}


def test_a_quarter_of_what_is_free_on_a_host_is_shared_by_its_ranks(monkeypatch):
    for free, ranks, depth, expected in (
        (8192, 1, "normal", 64), (1024, 1, "normal", 64), (1024, 8, "normal", 32),
        (100, 2, "normal", 12), (8, 64, "normal", 1), (0, 4, "normal", 1),
        (8192, 2, "full", 512), (8192, 16, "full", 128),
    ):  # fmt: skip
        monkeypatch.setattr("oddrank.machine.device.free_host_memory", lambda f=free: f * MIB)
        here = SimpleNamespace(local_world=ranks)
        assert device.memory_to_verify(CPU, here, depth) == expected * MIB, (free, ranks, depth)


def test_a_gpu_is_tested_nearly_whole_unless_the_test_is_quick_or_others_use_it(monkeypatch):
    monkeypatch.setattr(device, "free_bytes", lambda *_: 140 * 1024 * MIB)
    for depth, alone, expected in (
        ("quick", True, 1024), ("normal", True, 129_024), ("full", True, 129_024),
        ("normal", False, 1024), ("full", False, 1024),
    ):  # fmt: skip
        found = device.memory_to_verify(GPU, SimpleNamespace(), depth, alone=alone)
        assert found == expected * MIB, (depth, alone)


def test_all_patterns_are_written_where_they_take_no_time_or_that_is_asked_for(monkeypatch):
    def verify(kind, launch, size, *, thorough, enough):
        return {"device": kind, "size": size, "thorough": thorough and enough > 0}

    monkeypatch.setattr(device, "free_bytes", lambda *_: 1 << 40)
    monkeypatch.setattr(device, "verify", verify)
    for (kind, shared), depth in product(((CPU, 0), (GPU, 0), (GPU, 5)), LEVELS):
        here = SimpleNamespace(rank=5, local_world=1)
        plan = {"device": kind, "shared": [shared]}
        size = device.memory_to_verify(kind, here, depth, alone=shared == 0)
        thorough = (kind, depth) in ((CPU, "full"), (GPU, "normal"), (GPU, "full"))
        said = {"device": kind, "size": size, "thorough": thorough}
        found = device.stage(Options(depth)).measure(context(plan, launch=here))
        assert found == said, (kind, shared, depth)


def test_ranks_whose_gpu_others_use_are_known_when_the_test_is_planned():
    run = on_gpus(())
    run.results["health"] = {r: {"processes": [7, 8] if r == 2 else [7]} for r in range(4)}
    assert device.stage(Options()).plan(run) == {"device": "GPU", "shared": [2]}


class FakeCuda:
    """A GPU of 80 GiB that other programs have taken a part of, and that is fast or not."""

    def __init__(self, left):
        self.left, self.sizes = left, []

    def set_rank(self, rank):
        pass

    def memory_info(self, index):
        return 72 << 30, 80 << 30

    def verify_memory(self, index, size, seed, *, thorough, enough, seconds):
        assert seconds > enough
        self.sizes.append(size)
        if size > self.left:
            raise OddrankError("cudaMalloc failed with cudaErrorMemoryAllocation (2): no memory")
        return {"bytes": size, "passes": 6, "mismatches": {"count": 0}}


def verified(monkeypatch, cuda, size):
    monkeypatch.setattr(_native, "cuda", lambda: cuda)
    monkeypatch.setattr(device, "gpu_index", lambda launch: 0)
    return device.verify(GPU, SimpleNamespace(rank=0), size, thorough=True)


def test_memory_that_was_taken_meanwhile_is_not_tested_and_the_result_says_so(monkeypatch):
    cuda = FakeCuda(50 << 30)
    found = verified(monkeypatch, cuda, 72 << 30)
    assert cuda.sizes == [72 << 30, 54 << 30, 41472 << 20]
    assert (found["bytes"], found["total"], found["wrong"]) == (41472 << 20, 80 << 30, None)
    with pytest.raises(OddrankError, match="cudaMalloc"):
        verified(monkeypatch, FakeCuda(0), 72 << 30)


def run_with(*results):
    return run_by_rank({"device": dict(enumerate(results))}, ranks=len(results))


def test_the_summary_says_how_much_of_the_gpus_was_tested(golden):
    less = {**RESULT, "bytes": 40 << 30, "patterns": 2}
    golden("\n".join(map(device.covered, (run_with(RESULT, RESULT), run_with(RESULT, less)))))
    assert device.covered(run_with({**RESULT, "device": "CPU", "total": None})) == ""


def test_memory_that_is_bad_and_ranks_that_can_not_test_their_gpus_are_found(golden):
    wrong = _native.core().verify_host_memory(MIB, 7, damage=1000)["mismatches"]
    result = {**RESULT, "device": "CPU", "bytes": MIB, "total": None, "patterns": 2}
    bad = device.stage(Options()).conclude(run_with(result, {**result, "wrong": wrong}))
    judge = environment.stage(Options()).conclude
    said = {
        "broken bad-memory: 1": {"a word came back wrong": bad},
        "different cuda-part-missing: 3": {"one lacks a part": judge(on_gpus({3}))},
        "different cuda-part-missing: 0": {"rank 0 lacks it": judge(on_gpus({0}))},
        "unknown cuda-part-missing: nobody": {"all lack it": judge(on_gpus(range(4)))},
    }
    check(said, golden)


def on_gpus(lacking, ranks=4):
    facts = {
        r: {"gpus": ranks, "local_world": ranks, "gpu_id": None, "cuda_part": why}
        for r in range(ranks)
        for why in ["_cuda: no nvcc. Type this" if r in lacking else ""]
    }
    return run_by_rank({"environment": facts}, ranks=ranks, on_node=ranks)


def test_where_a_rank_can_not_test_its_gpu_none_is_tested():
    assert device.make_plan(on_gpus({3})) == Skip("rank 3 without the part _cuda")
    assert device.backend(on_gpus({3})) == "nccl"


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
    assert {skipped[name] for name in only.split(",")} == {"rank 1 without the part _cuda"}
    assert verdict.gone()

"""Ranks compute on GPUs only if each has one to itself."""

from types import SimpleNamespace

import pytest

from oddrank import _native
from oddrank.machine import device
from oddrank.machine.device import choose, without_code


def test_gpus_are_used_where_every_rank_has_its_own_and_a_rank_alone_takes_any():
    for gpus, ids, expected in (
        ([0, 0], [None, None], "CPU"), ([2, 2], [None, None], "GPU"), ([2, 0], [None, None], "CPU"),
        ([1, 1], ["a", "b"], "GPU"),  # a launcher shows each rank its own
        ([1, 1], ["a", "a"], "CPU"),  # two ranks on one
        ([1, 1], [None, None], "CPU"), ([2, 1], [None, "b"], "GPU"),
        ([0], [None], "CPU"), ([1], [None], "GPU"), ([8], [None], "GPU"),
    ):  # fmt: skip
        facts = [{"gpus": n, "gpu_id": i, "local_world": len(gpus)}
                 for n, i in zip(gpus, ids, strict=True)]  # fmt: skip
        assert choose(facts) == expected, facts


BUILT = "75-real 80-real 86-real 89-real 90-real 100-real 103-real 120-real 120-virtual"


RUNS = (
    ((7, 0), BUILT, False),  # V100: older than all of it
    ((7, 5), BUILT, True),  # T4
    ((8, 7), BUILT, True),  # the code of 8.6
    ((9, 0), BUILT, True),
    ((11, 0), BUILT, False),  # no machine code for 11.x, and only newer PTX
    ((12, 1), BUILT, True),
    ((13, 0), BUILT, True),  # compiles the PTX
    ((10, 0), "80-real 90-real", False),  # newer, and there is no PTX
    ((8, 9), "80-real", True), ((10, 0), "80", True), ((10, 0), "90-virtual", True),
    ((9, 0), "90a-real", True), ((10, 3), "90a", False), ((10, 3), "100f-real", True),
    ((12, 0), "100f", False), ((7, 0), "native", True), ((7, 0), "", True),
)  # fmt: skip


def test_a_gpu_runs_code_for_its_major_number_or_older_ptx():
    for capability, architectures, runs in RUNS:
        why = without_code("NVIDIA X", capability, architectures)
        assert (why == "") == runs, (capability, architectures)
        if not runs:
            number = "".join(map(str, capability))
            assert f"no code for NVIDIA X (sm_{number})" in why
            assert f"ODDRANK_CUDA_ARCHITECTURES={number}" in why


@pytest.mark.needs("torch")
def test_a_gpu_without_code_is_known_before_anything_runs_on_it(monkeypatch):
    import torch

    built = SimpleNamespace(build_info={"architectures": BUILT}, nccl_obstacle=lambda: "")
    monkeypatch.setattr(_native, "cuda_part", lambda: _native.Part("_cuda", built))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Tesla V100-SXM2-32GB")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, index * 5))
    old, new = (device.facts(SimpleNamespace(local_rank=r, local_world=2)) for r in range(2))
    assert old["cuda_part"].startswith("_cuda: it has no code for Tesla V100-SXM2-32GB (sm_70)")
    assert new["cuda_part"] == ""

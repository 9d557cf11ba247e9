"""Ranks compute on GPUs only if each has one to itself."""

import pytest

from oddrank.machine.device import choose


@pytest.mark.parametrize(
    ("gpus", "ids", "expected"),
    [
        ([0, 0], [None, None], "CPU"),
        ([2, 2], [None, None], "GPU"),
        ([2, 0], [None, None], "CPU"),
        ([1, 1], ["a", "b"], "GPU"),  # a launcher shows each rank its own
        ([1, 1], ["a", "a"], "CPU"),  # two ranks on one
        ([1, 1], [None, None], "CPU"),
        ([2, 1], [None, "b"], "GPU"),
    ],
)
def test_gpus_are_used_where_every_rank_has_its_own(gpus, ids, expected):
    facts = [{"gpus": n, "gpu_id": i, "local_world": 2} for n, i in zip(gpus, ids, strict=True)]
    assert choose(facts) == expected


@pytest.mark.parametrize(("gpus", "expected"), [(0, "CPU"), (1, "GPU"), (8, "GPU")])
def test_a_rank_alone_takes_any_gpu(gpus, expected):
    assert choose([{"gpus": gpus, "gpu_id": None, "local_world": 1}]) == expected

"""Ranks compute on GPUs only where each has one to itself, and over NCCL where each can."""

import pytest

from oddrank.bench.place import choose
from oddrank.bench.sweep import _choose
from oddrank.control.stages import Rounds
from oddrank.errors import OddrankError


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


CUDA = "_cuda: nvcc was not found. Install it"
BLOCKING = "NCCL_COMM_BLOCKING is set: unset it"


@pytest.mark.parametrize("facts", [{"cuda_part": CUDA}, {"obstacle": BLOCKING}])
def test_what_keeps_one_rank_from_nccl_itself_is_told_where_it_was_asked_for(facts):
    well = {"cuda_part": "", "obstacle": ""}
    ranks = {"devices": {0: well, 1: {**well, **facts}}, "connect": {0: {"transport": "nccl"}}}
    rounds = Rounds(2, results=ranks)
    with pytest.raises(OddrankError) as told:
        _choose("nccl", rounds)
    assert str(told.value) == f"the back end nccl can't be used: {next(iter(facts.values()))}"
    assert _choose("auto", rounds) == "c10d"
    ranks["devices"][1] = well
    assert _choose("auto", rounds) == _choose("nccl", rounds) == "nccl"

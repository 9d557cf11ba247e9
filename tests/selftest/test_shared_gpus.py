"""A rank that shares its GPU is neither named slow nor a reference for others."""

from random import Random

import pytest

from figures import measured, run_of
from oddrank.selftest import Options
from oddrank.selftest.metrics import SPEED
from oddrank.selftest.stages import speed


def doubted(slow, shared=()):
    """Returns the suspects of the first measurement."""
    run = run_of([8, 8])
    run.results[SPEED] = measured(run, Random(1), noise=0.002, slow=slow)
    run.results["health"] = {
        rank: {"pid": 1, "processes": [1, 2] if rank in shared else [1]} for rank in range(16)
    }
    found = speed.stage(Options()).conclude(run)
    return {rank for finding in found for rank in finding.who.ranks}


@pytest.mark.parametrize("figure", ["gpu_copy", "gemm_bf16", "pcie_to_host"])
def test_a_gpu_that_others_use_is_not_called_slow(figure):
    slow = {figure: {5: 0.5}}
    assert doubted(slow) == {5}
    assert doubted(slow, shared={5}) == set()


def test_its_host_is_compared_all_the_same():
    assert doubted({"host_copy": {5: 2.0}}, shared={5}) == {5}

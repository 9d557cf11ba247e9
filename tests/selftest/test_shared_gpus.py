"""A rank that shares its GPU is neither named slow nor a reference for others."""

from random import Random

import pytest

from figures import measured, run_of
from oddrank.selftest import Options
from oddrank.selftest.metrics import SPEED
from oddrank.selftest.stages import speed


def measured_run(slow, shared=(), profiled=()):
    run = run_of([8, 8])
    run.results[SPEED] = measured(run, Random(1), noise=0.002, slow=slow)
    run.results["health"] = {
        rank: {
            "pid": 1,
            "processes": [1, 2] if rank in shared else [1],
            "readings": {"profiled": int(rank in profiled)},
        }
        for rank in range(16)
    }
    return run


def doubted(*arguments, **options):
    """Returns the suspects of the first measurement."""
    found = speed.stage(Options()).conclude(measured_run(*arguments, **options))
    return {rank for finding in found for rank in finding.who.ranks}


@pytest.mark.parametrize("figure", ["gpu_copy", "gemm_bf16", "pcie_to_host"])
def test_a_gpu_that_others_use_is_not_called_slow(figure):
    slow = {figure: {5: 0.5}}
    assert doubted(slow) == {5}
    assert doubted(slow, shared={5}) == set()


def test_its_host_is_compared_all_the_same():
    assert doubted({"host_copy": {5: 2.0}}, shared={5}) == {5}


@pytest.mark.parametrize("profiled", [{5}, set(range(16))])
def test_a_profiler_excludes_no_gpu_and_is_told_beside_a_slow_one(profiled):
    slow = {"gpu_copy": {5: 0.5}}
    run = measured_run(slow, profiled=profiled)
    assert {rank for f in speed.stage(Options()).conclude(run) for rank in f.who.ranks} == {5}
    run.results[speed.RECHECK] = measured(run, Random(2), noise=0.002, slow=slow)
    (found,) = speed.recheck(Options()).conclude(run)
    assert (found.condition, found.who.ranks) == ("slow", (5,))
    text = "a profiler (DCGM) reads the performance counters of rank 5 meanwhile"
    assert [one.text for one in found.evidence].count(text) == 1

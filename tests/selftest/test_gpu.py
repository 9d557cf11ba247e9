"""The self-test and a sweep on real GPUs, with nccl."""

import subprocess

import pytest

from job import job

# Longer than the longest deadline of the jobs plus start and end of the launcher.
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]


@pytest.fixture
def gpus() -> int:
    return len(subprocess.check_output(["nvidia-smi", "-L"], text=True).splitlines())


def test_every_gpu_is_tested_by_a_rank_of_its_own(gpus):
    verdict = job(gpus, deadline=120)
    assert verdict.healthy(), str(verdict)
    assert verdict.report["data"]["device"] == "GPU"
    assert "GPU memory tested" in verdict.report["summary"]
    every = [rank["metrics"] for rank in verdict.report["data"]["ranks"]]
    for one in every:
        assert one["device"]["patterns"] == 6
        assert one["device"]["bytes"] > 0.8 * one["device"]["total"]
    kinds = {}
    for one in every:
        prints = one["fingerprint"]["gpu"]
        kinds.setdefault(prints["kind"], []).append(prints["hashes"])
    assert all(hashes[0] == one for hashes in kinds.values() for one in hashes)
    assert verdict.gone()


def test_more_ranks_than_gpus_are_tested_on_the_cpu(gpus):
    verdict = job(gpus + 1, deadline=120)
    assert verdict.healthy(), str(verdict)
    assert verdict.report["data"]["device"] == "CPU"


def test_a_sweep_runs_on_nccl_itself_and_through_torch(gpus):
    for backend, name in (("nccl", "nccl"), ("c10d", "c10d:nccl")):
        command = ("bench", "run", "--sizes", "8:64M:x64", "--backend", backend, "--budget", "10")
        verdict = job(gpus, command=command, deadline=120)
        assert verdict.healthy(), str(verdict)
        assert {row["backend"] for row in verdict.report["data"]["rows"]} == {name}


def test_a_rank_that_stops_is_named_with_its_gpu(gpus):
    verdict = job(gpus, stop=0, at="collectives", deadline=60)
    assert verdict.names(rank=0, stage="collectives"), str(verdict)
    assert verdict.report["findings"][0]["who"]["device"] == "GPU 0"
    assert verdict.gone()

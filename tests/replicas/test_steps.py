"""Faults within a step of three real gloo ranks: the rank that made them is named, and where."""

from pathlib import Path

import pytest

from golden import Golden
from oddrank.replicas import checkpoints, compare
from replicas import scenarios
from replicas.scenarios import Job

pytestmark = [pytest.mark.job, pytest.mark.needs("torch"), pytest.mark.timeout(900)]
HEALTHY = ("healthy",)
EVERYWHERE = ("unknown", ("nonfinite-everywhere", []))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    file = Path(__file__).with_name("steps_job.py")
    return scenarios.run(file, 3, tmp_path_factory.mktemp("steps"))


def first(rank: int) -> tuple[object, ...]:
    return ("odd", ("first-nonfinite", [rank]))


def test_the_rank_that_made_a_nan_is_named_and_not_those_that_receive_it(job: Job, golden: Golden):
    job.judge(golden, {
        "all_finite": [],
        "one_rank_overflows": [first(1)],
        # A rank's own gradient is seen before DDP adds it up.
        "one_rank_s_gradient_is_nan": [first(2)],
        # Ranks that ran other layers are not blamed for what they received.
        "one_rank_runs_more_layers": [EVERYWHERE],
        # A shard of a parameter is named before the sum that spreads it.
        "one_rank_s_parameter_is_nan": [first(1)],
        "one_rank_of_full_shards_overflows": [first(2)],
        "all_ranks_diverge": [EVERYWHERE],
        "a_search_ends_the_step_on_all_ranks": [first(0)],
    })  # fmt: skip
    said, report = job("a_search_ends_the_step_on_all_ranks")
    assert said == report["summary"]


def test_a_rank_that_computes_other_bits_in_a_replay_is_named(job: Job, golden: Golden):
    job.judge(golden, {
        "a_step_that_repeats": [HEALTHY],
        "a_rank_that_does_not_repeat": [("odd", ("not-repeated", [1]))],
        "a_rank_of_full_shards_that_does_not_repeat": [("odd", ("not-repeated", [2]))],
        "a_step_that_does_not_repeat": [("unknown", ("not-deterministic", []))],
        "a_replay_after_an_evaluation": [HEALTHY],
    })  # fmt: skip
    assert job("a_step_that_repeats")["data"]["tensors"] > 100
    _, leaves_the_training_one_step_further = job("a_replay_after_an_evaluation")
    assert leaves_the_training_one_step_further


def test_a_folder_of_dcp_has_the_tensors_of_all_its_ranks(job: Job):
    """The shards of three ranks, whose sizes differ, against the whole tensors."""
    folder, whole = (checkpoints.read(str(job.folder / name)) for name in ("shards", "whole.pt"))
    assert folder.as_json()["tensors"] == whole.as_json()["tensors"]
    assert folder.values == whole.values == {"step": "7"}
    assert compare.report([folder, whole]).verdict == "healthy"

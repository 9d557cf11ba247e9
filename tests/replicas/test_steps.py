"""NaN within a step of three real gloo ranks: the rank that made it is named, and where."""

from pathlib import Path

import pytest

from golden import Golden
from oddrank.replicas import checkpoints, compare
from replicas import scenarios
from replicas.scenarios import Job, bits

pytestmark = [pytest.mark.job, pytest.mark.needs("torch"), pytest.mark.timeout(900)]
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


def test_a_folder_of_dcp_has_the_tensors_of_all_its_ranks(job: Job):
    """The shards of three ranks, whose sizes differ, against the whole tensors."""
    folder, whole = (checkpoints.read(str(job.folder / name)) for name in ("shards", "whole.pt"))
    assert bits(folder) == bits(whole)
    assert folder.values == whole.values == {"step": "7"}
    assert compare.report([folder, whole]).verdict == "healthy"

"""Faults within a step of three real gloo ranks: the rank that made them is named, and where."""

from pathlib import Path
from typing import Any

import pytest

from oddrank.replicas import checkpoints, compare
from replicas import scenarios
from replicas.scenarios import Job

pytestmark = [pytest.mark.job, pytest.mark.needs("torch"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    file = Path(__file__).with_name("steps_job.py")
    return scenarios.run(file, 3, tmp_path_factory.mktemp("steps"))


def named(report: dict[str, Any]) -> list[tuple[str, list[int]]]:
    return [(one["cause"], one["who"]["ranks"]) for one in report["findings"]]


def test_a_training_without_nan_is_let_go(job: Job):
    assert job("all_finite") == []


def test_the_rank_whose_layer_overflows_is_named_and_not_those_that_get_its_gradients(job: Job):
    (report,) = job("one_rank_overflows")
    assert named(report) == [("first-nonfinite", [1])]
    assert report["summary"].endswith("inf in the output of 1.up at step 4003")
    received = report["findings"][0]["evidence"][1]["text"]
    assert received.startswith("ranks 0, 2: nan in the final gradient of ")
    assert received.endswith("at step 4003")


def test_a_rank_s_own_gradient_is_seen_before_ddp_adds_it_up(job: Job):
    (report,) = job("one_rank_s_gradient_is_nan")
    assert named(report) == [("first-nonfinite", [2])]
    assert report["summary"].endswith("nan in the gradient of 0.norm.weight at step 1")


def test_ranks_that_ran_other_layers_are_not_blamed_for_what_they_received(job: Job):
    (report,) = job("one_rank_runs_more_layers")
    assert named(report) == [("nonfinite-everywhere", [])]
    assert report["summary"].endswith(
        "is unknown: ranks that ran other layers have it in the same step"
    )


def test_a_shard_of_a_parameter_is_named_before_the_sum_that_spreads_it(job: Job):
    (report,) = job("one_rank_s_parameter_is_nan")
    assert named(report) == [("first-nonfinite", [1])]
    assert report["summary"].endswith("nan in the parameter 0.up.weight at step 1")
    assert "ranks 0, 2: nan in the output of 0.down" in report["findings"][0]["evidence"][1]["text"]


def test_a_rank_with_fully_sharded_parameters_is_named(job: Job):
    (report,) = job("one_rank_of_full_shards_overflows")
    assert named(report) == [("first-nonfinite", [2])]
    assert "in the output of 0.down at step 1" in report["summary"]


def test_a_loss_that_diverges_on_all_ranks_blames_none(job: Job):
    (report,) = job("all_ranks_diverge")
    assert report["verdict"] == "unknown"
    assert named(report) == [("nonfinite-everywhere", [])]
    assert "on ranks 0-2; which rank made it is unknown" in report["summary"]


def test_all_ranks_raise_at_the_same_step(job: Job):
    said, report = job("a_search_ends_the_step_on_all_ranks")
    assert said == report["summary"]
    assert named(report) == [("first-nonfinite", [0])]


@pytest.mark.parametrize(
    ("scenario", "rank", "key"),
    [
        ("digests_of_copies", 1, "1.up.weight"),
        ("digests_of_shards", 2, "0.up.weight [Shard 0: part 2 of 3]"),
    ],
)
def test_a_load_that_is_not_what_was_saved_names_rank_and_tensor(
    job: Job, scenario: str, rank: int, key: str
):
    same, changed = job(scenario)
    assert same["verdict"] == "healthy", same["summary"]
    assert named(changed) == [("different-from-saved", [rank])]
    assert "did not load what was saved: 1 of 50 tensors differs" in changed["summary"]
    assert f"{key} (other bits)" in changed["summary"]


def test_the_first_copy_alone_saves_digests(job: Job):
    assert sorted(file.name for file in (job.folder / "copies").iterdir()) == [
        "oddrank-digests-rank0.json"
    ]


def test_digests_that_nobody_saved_are_no_health(job: Job):
    report = job("digests_that_nobody_saved")
    assert report["verdict"] == "incomplete"
    assert report["summary"].count("call save_digests() where you save") == 1


def test_a_folder_of_dcp_has_the_tensors_of_all_its_ranks(job: Job):
    """The shards of three ranks, whose sizes differ, against the whole tensors."""
    folder, whole = (checkpoints.read(str(job.folder / name)) for name in ("shards", "whole.pt"))
    assert folder.as_json()["tensors"] == whole.as_json()["tensors"]
    assert folder.values == whole.values == {"step": "7"}
    assert compare.report([folder, whole]).verdict == "healthy"


def test_a_step_that_repeats_is_healthy(job: Job):
    report = job("a_step_that_repeats")
    assert report["verdict"] == "healthy"
    assert report["data"]["tensors"] > 100


@pytest.mark.parametrize(
    ("scenario", "rank", "where"),
    [
        ("a_rank_that_does_not_repeat", 1, "the output of 1.up has other bits"),
        ("a_rank_of_full_shards_that_does_not_repeat", 2, "the output of 0.down has other bits"),
    ],
)
def test_a_rank_that_computes_other_bits_in_a_replay_is_named(
    job: Job, scenario: str, rank: int, where: str
):
    report = job(scenario)
    assert named(report) == [("not-repeated", [rank])]
    assert where in report["summary"]


def test_a_step_that_repeats_nowhere_blames_none(job: Job):
    report = job("a_step_that_does_not_repeat")
    assert report["verdict"] == "unknown"
    assert named(report) == [("not-deterministic", [])]


def test_a_replay_after_an_evaluation_leaves_the_training_one_step_further(job: Job):
    report, same = job("a_replay_after_an_evaluation")
    assert report["verdict"] == "healthy", report["summary"]
    assert same

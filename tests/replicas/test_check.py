"""Four real gloo ranks with a fault each: the first check after it names rank, tensor, element."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import forked
from replicas import scenarios
from replicas.scenarios import Job

pytestmark = [pytest.mark.job, pytest.mark.needs("torch"), pytest.mark.timeout(900)]
JOB = Path(__file__).with_name("replicas_job.py")
RANKS = 4


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return scenarios.run(JOB, RANKS, tmp_path_factory.mktemp("job"))


def named(report: dict[str, Any]) -> list[tuple[str, list[int]]]:
    return [(one["cause"], one["who"]["ranks"]) for one in report["findings"]]


def odd_tensors(report: dict[str, Any]) -> list[str]:
    return [t["name"] for outlier in report["data"]["different"] for t in outlier["tensors"]]


def test_ranks_that_trained_on_their_own_data_are_healthy(job: Job):
    report = job("healthy")
    assert report["verdict"] == "healthy"
    # 12 parameters, their gradients, 2 buffers, 3 tensors of state for each parameter
    assert report["data"]["tensors"] == 12 * 5 + 2
    assert report["data"]["groups"] == ["0:3:1"]


def test_a_flipped_bit_is_named_with_rank_tensor_block_element_and_values(job: Job):
    report = job("flipped_bit")
    assert named(report) == [("different-bits", [2])]
    assert odd_tensors(report) == ["1.up.weight"]
    place = report["data"]["different"][0]["tensors"][0]["place"]
    assert (place["index"], place["different"], place["blocks"]) == ([33, 7], 1, 2)
    assert sorted(place["values"].values()) == [[0, 1, 3], [2]]
    assert "rank 2" in report["summary"]
    assert "1.up.weight (params), first at [33, 7]" in report["summary"]


def test_a_flip_in_the_optimizer_s_state_is_found_before_it_reaches_a_parameter(job: Job):
    report = job("flipped_optimizer_state")
    assert named(report) == [("different-bits", [1])]
    assert odd_tensors(report) == ["0.norm.bias.exp_avg_sq"]


def test_rank_0_can_be_the_odd_one(job: Job):
    report = job("flipped_buffer")
    assert named(report) == [("different-bits", [0])]
    assert odd_tensors(report) == ["0.scale"]
    assert "-0.5 (0xbf000000) instead of 0.5 (0x3f000000)" in report["summary"]


def test_a_rank_whose_first_weights_nobody_broadcast_is_named(job: Job):
    report = job("skipped_broadcast")
    assert named(report) == [("different-bits", [1])]
    assert "0.up.weight" in odd_tensors(report)


def test_gradients_that_were_not_reduced_have_no_majority(job: Job):
    report = job("without_no_sync_s_last_backward")
    assert named(report) == [("no-majority", [])]
    assert report["verdict"] == "unknown"
    assert all(name.endswith(".grad") for name in odd_tensors(report))


@pytest.mark.parametrize(
    ("scenario", "rank"), [("bloom_clips_on_rank_0_only", 0), ("bloom_forgets_on_rank_2", 2)]
)
def test_the_bloom_bug_is_named_at_the_first_step(job: Job, scenario: str, rank: int):
    (report,) = job(scenario)
    assert named(report)[0] == ("different-bits", [rank])
    params = {
        tensor["name"]
        for outlier in report["data"]["different"]
        for tensor in outlier["tensors"]
        if tensor["what"] == "params"
    }
    assert params == {f"{i}.norm.{part}" for i in (0, 1) for part in ("weight", "bias")}


def test_with_the_clip_on_all_ranks_the_norms_stay_alike(job: Job):
    assert job("bloom_mended") == []


def test_of_two_copies_of_a_shard_none_is_blamed(job: Job):
    before, after = job("hybrid_shards")
    assert before["verdict"] == "healthy"
    assert after["verdict"] == "unknown"
    assert named(after) == [("no-majority", [])]
    assert "ranks 1, 3 hold different bits" in after["summary"]
    assert "0.up.weight" in after["summary"]


def test_a_copy_of_a_shard_is_checked_with_the_digest_of_the_first(job: Job):
    before, after = job("digests_of_hybrid_shards")
    assert before["verdict"] == "healthy", before["summary"]
    assert named(after) == [("different-from-saved", [3])]
    assert "1.down.weight [Shard 0: part 1 of 2] (other bits)" in after["summary"]
    saved = json.loads((job.folder / "oddrank-digests-rank1.json").read_text())["data"]["tensors"]
    assert all("part 1 of 2" in name for name in saved if "scale" not in name)


def test_what_is_only_sharded_is_left_out_with_the_reason(job: Job):
    report = job("full_shards")
    assert report["verdict"] in ("incomplete", "healthy")
    assert {one["why"] for one in report["data"]["skipped"]} == {
        "it is sharded over all ranks: no other rank has a copy"
    }


def test_a_dtensor_is_compared_among_all_ranks_with_copies(job: Job):
    report = job("dtensors_in_two_dimensions")
    assert named(report) == [("different-bits", [1]), ("no-majority", [])]
    groups = [outlier["group"] for outlier in report["data"]["different"]]
    assert sorted(groups) == [[0, 1, 2, 3], [1, 3]]  # of the bias, of a shard of the weight
    assert "1 of 1 tensor: bias (params), first at [6]" in report["summary"]


def test_a_norm_that_fsdp_shards_is_compared_along_tensor_parallelism(job: Job):
    before, after = job("shards_beside_tensor_parallelism")
    assert before["verdict"] == "healthy", before["summary"]
    assert named(after) == [("no-majority", [])]
    assert "ranks 2-3 hold different bits in 1 of" in after["summary"]
    assert "1.norm.weight (params), first at [4]" in after["summary"]


def test_groups_of_one_rank_are_no_health(job: Job):
    report = job("groups_of_one_rank")
    assert report["verdict"] == "incomplete"
    assert "nothing was compared: its group has one rank" in report["summary"]


def test_a_rank_outside_of_a_group_may_give_it(job: Job):
    report = job("a_group_that_all_ranks_give")
    assert named(report) == [("different-bits", [1])]
    assert "rank 1" in report["summary"]


def test_two_groups_of_all_ranks_are_one(job: Job):
    report = job("groups_of_all_ranks_that_are_found_in_another_order")
    assert named(report) == [("different-tensors", [1])]


def test_a_rank_that_resumed_from_another_step_is_named(job: Job):
    report = job("wrong_resume")
    assert named(report) == [("different-facts", [3])] * 2
    assert "has step 4000, the others 4100" in report["summary"]


def test_another_learning_rate_is_named(job: Job):
    report = job("other_learning_rate")
    assert named(report) == [("different-facts", [0])]
    assert "has lr of parameter group 0 0.02, the others 0.01" in report["summary"]


def test_seeds_of_each_rank_s_own_are_fine_but_one_that_strays_is_suspicious(job: Job):
    own, same, stray = job("seeds")
    assert (own["verdict"], same["verdict"], stray["verdict"]) == ("healthy", "healthy", "unknown")
    assert {one["condition"] for one in stray["findings"]} == {"suspicious"}
    assert "the seed of torch" in " ".join(one["what"] for one in stray["findings"])


def test_a_layer_more_on_one_rank_is_named_and_the_rest_is_compared(job: Job):
    report = job("missing_layer")
    assert ("different-tensors", [1]) in named(report)
    told = [e["text"] for one in report["findings"] for e in one["evidence"]]
    assert any("2.weight (params): none on ranks [0, 2, 3]" in text for text in told)
    assert any("float32 [65, 32] on ranks [1]" in text for text in told)


def test_given_groups_are_compared_apart_and_all_ranks_have_the_report(job: Job):
    report = job("given_halves")
    assert named(report) == [("no-majority", [])]
    assert "ranks 2-3 hold different bits" in report["summary"]
    assert "0.norm.weight" in report["summary"]


def test_ranks_outside_of_a_group_have_its_findings(job: Job):
    report = job("a_group_of_two_ranks_only")
    assert named(report) == [("no-majority", [])]
    assert "ranks 2-3 hold different bits in 1 of 2 tensors: 1.up.bias" in report["summary"]


def test_groups_that_differ_end_in_one_line_and_no_hang(job: Job):
    report = job("groups_that_differ")
    assert named(report) == [("different-groups", [])]
    assert "rank 0" in report["summary"]


def test_groups_that_change_end_in_one_line_and_no_hang(job: Job):
    (report,) = job("groups_that_change_between_checks")
    assert named(report) == [("different-groups", [])]
    assert "rank 0" in report["summary"]
    assert report["summary"].endswith("no tensor was compared")


def test_shards_that_look_like_plain_tensors_raise_no_alarm(job: Job):
    report = job("old_fsdp")
    assert report["verdict"] == "healthy", report["summary"]
    why = {one["name"]: one["why"] for one in report["data"]["skipped"]}
    assert "FSDP1 shards it: give groups= the ranks with the same shard" in why.values()
    assert "the module does not have its parameter: give groups=" in why.values()


def test_what_has_no_copy_or_no_values_is_left_out_with_the_reason(job: Job):
    report = job("what_cannot_be_compared")
    assert report["verdict"] == "healthy"
    why = {one["name"]: one["why"] for one in report["data"]["skipped"]}
    assert why["meta.weight"] == "it is a meta tensor without values"
    assert "expert" in why["expert.weight"]
    assert "batch norm" in why["batch_norm.running_mean"]
    assert "before the first forward" in why["lazy.weight"]


def test_every_type_is_compared_and_shown_as_its_values(job: Job):
    report = job("all_types")
    assert named(report) == [("different-bits", [1])]
    tensors = report["data"]["different"][0]["tensors"]
    assert [tensor["name"] for tensor in tensors] == [f"of{i}" for i in range(8)]
    assert all(tensor["place"]["index"] == [3, 2] for tensor in tensors)


def test_watch_ends_all_ranks_at_the_next_step_that_it_looks_at(job: Job):
    steps, said, verdict = job("watched")
    assert (steps, verdict) == (6, "odd")
    assert "rank 2" in said


def test_ranks_that_watch_other_steps_are_told_before_they_wait(job: Job):
    report = job("watched_after_other_steps")
    assert named(report) == [("different-facts", [2])]
    assert "has every= of watch 3, the others 2" in report["summary"]


def test_bad_arguments_end_in_one_clear_line(job: Job):
    said = job("bad_arguments")
    assert all(said)
    assert all("\n" not in line for line in said)


def test_the_example_names_the_rank_that_forgets_the_clip():
    example = Path(__file__).parents[2] / "examples" / "replicas_demo.py"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4"]
    done = forked.run([*torchrun, example], text=True)
    assert done.returncode == 1, done.stderr[-3000:]
    assert done.stdout.startswith("rank 2 ("), done.stdout
    assert "holds other bits than ranks 0-1, 3 in 4 of 6 tensors: 0.norm.weight" in done.stdout

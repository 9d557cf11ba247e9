"""Four real gloo ranks with a fault each: the first check after it names rank, tensor, element."""

import sys
from pathlib import Path

import pytest

import forked
from golden import Golden
from replicas import scenarios
from replicas.scenarios import Job

pytestmark = [pytest.mark.job, pytest.mark.needs("torch"), pytest.mark.timeout(900)]
HEALTHY = ("healthy",)
NO_MAJORITY = ("unknown", ("no-majority", []))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    file = Path(__file__).with_name("replicas_job.py")
    return scenarios.run(file, 4, tmp_path_factory.mktemp("job"))


def odd(cause: str, *ranks: int) -> tuple[object, ...]:
    return ("odd", *((cause, [rank]) for rank in ranks))


def test_each_fault_is_named_with_rank_tensor_and_element(job: Job, golden: Golden):
    job.judge(golden, {
        "healthy": [HEALTHY],
        "flipped_bit": [odd("different-bits", 2)],
        # Before it reaches a parameter.
        "flipped_optimizer_state": [odd("different-bits", 1)],
        "flipped_buffer": [odd("different-bits", 0)],
        "without_no_sync_s_last_backward": [NO_MAJORITY],
        "bloom_mended": [],
        # Of two copies of a shard none is blamed.
        "hybrid_shards": [HEALTHY, NO_MAJORITY],
        "dtensors_in_two_dimensions":
            [("odd", ("different-bits", [1]), ("no-majority", []))],
        # A norm that FSDP shards is compared along tensor parallelism.
        "shards_beside_tensor_parallelism": [HEALTHY, NO_MAJORITY],
        "all_types": [odd("different-bits", 1)],
        "chunks_and_state_dicts": [HEALTHY, *[odd("different-bits", 2)] * 2],
    })  # fmt: skip


def test_facts_that_differ_are_named(job: Job, golden: Golden):
    job.judge(golden, {
        "wrong_resume": [odd("different-facts", 3, 3)],
        "other_learning_rate": [odd("different-facts", 0)],
        "watched_after_other_steps": [odd("different-facts", 2)],
    })  # fmt: skip


def test_groups_are_compared_apart_and_all_ranks_have_the_report(job: Job, golden: Golden):
    job.judge(golden, {
        "given_halves": [NO_MAJORITY],
        # Groups of one rank are no health.
        "groups_of_one_rank": [("incomplete",)],
        # A rank outside of a group may give it.
        "a_group_that_all_ranks_give": [odd("different-bits", 1)],
        # Two groups of all ranks are one.
        "groups_of_all_ranks_that_are_found_in_another_order": [odd("different-tensors", 1)],
        "a_group_of_two_ranks_only": [NO_MAJORITY],
        # These end in one line and no hang.
        "groups_that_differ": [("unknown", ("different-groups", []))],
        "groups_that_change_between_checks": [("unknown", ("different-groups", []))],
        # The rest of the layers is compared.
        "missing_layer": [odd("different-tensors", 1)],
    })  # fmt: skip


def test_places_of_changes_are_numbers_of_the_report(job: Job):
    report = job("healthy")
    # 12 parameters, their gradients, 2 buffers, 3 tensors of state for each parameter
    assert report["data"]["tensors"] == 12 * 5 + 2
    assert report["data"]["groups"] == ["0:3:1"]
    (outlier,) = job("flipped_bit")["data"]["different"]
    place = outlier["tensors"][0]["place"]
    assert (place["index"], place["different"], place["blocks"]) == ([33, 7], 1, 2)
    assert sorted(place["values"].values()) == [[0, 1, 3], [2]]
    (outlier,) = job("flipped_buffer")["data"]["different"]
    values = outlier["tensors"][0]["place"]["values"]
    assert values == {"0.5 (0x3f000000)": [1, 2, 3], "-0.5 (0xbf000000)": [0]}
    groups = [one["group"] for one in job("dtensors_in_two_dimensions")["data"]["different"]]
    assert sorted(groups) == [[0, 1, 2, 3], [1, 3]]  # of the bias, of a shard of the weight
    (outlier,) = job("all_types")["data"]["different"]
    assert [tensor["name"] for tensor in outlier["tensors"]] == [f"of{i}" for i in range(8)]
    assert all(tensor["place"]["index"] == [3, 2] for tensor in outlier["tensors"])


def odd_tensors(report, what):
    outliers = report["data"]["different"]
    return {t["name"] for one in outliers for t in one["tensors"] if t["what"] == what}


def test_what_a_whole_training_spreads_is_named_where_it_began(job: Job):
    """As the BLOOM bug, at the first step; and weights that nobody broadcast."""
    norms = {f"{i}.norm.{part}" for i in (0, 1) for part in ("weight", "bias")}
    for scenario, rank in (("bloom_clips_on_rank_0_only", 0), ("bloom_forgets_on_rank_2", 2)):
        (report,) = job(scenario)
        assert scenarios.named(report)[0] == ("different-bits", [rank])
        assert odd_tensors(report, "params") == norms
    report = job("skipped_broadcast")
    assert scenarios.named(report) == [("different-bits", [1])]
    assert "0.up.weight" in odd_tensors(report, "params")
    report = job("without_no_sync_s_last_backward")
    assert odd_tensors(report, "grads")
    assert not odd_tensors(report, "params")


def test_what_has_no_copy_or_no_values_is_left_out_with_the_reason(job: Job, golden: Golden):
    said = {}
    for scenario in ("full_shards", "old_fsdp", "what_cannot_be_compared"):
        report = job(scenario)
        assert report["verdict"] in ("healthy", "incomplete"), report["summary"]
        said |= {one["why"]: f"{one['name']}: {one['why']}" for one in report["data"]["skipped"]}
    golden("\n".join(said.values()))


def test_watch_ends_all_ranks_at_the_next_step_that_it_looks_at(job: Job):
    steps, said, report = job("watched")
    assert (steps, report["verdict"]) == (6, "odd")
    assert "rank 2" in said


def test_the_example_names_the_rank_that_forgets_the_clip():
    example = Path(__file__).parents[2] / "examples" / "replicas_demo.py"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4"]
    done = forked.run([*torchrun, example], text=True)
    assert done.returncode == 1, done.stderr[-3000:]
    assert done.stdout.startswith("rank 3 ("), done.stdout
    assert "holds other bits than ranks 0-2 in 4 of 6 tensors: 0.norm.weight" in done.stdout
    # README shows both, folded; the last bits are those of a processor.
    readme = " ".join((example.parents[1] / "README.md").read_text().split())
    said = next(line for line in done.stderr.splitlines() if line.startswith("oddrank: replicas"))
    assert said in readme
    assert done.stdout.partition(")")[2].partition(": -")[0] in readme

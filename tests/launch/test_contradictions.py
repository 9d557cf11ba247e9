"""Contradictory variables are refused; the error names both variables and both values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch import environments as made
from oddrank import LaunchError, launch


def one_line(error):
    assert "\n" not in str(error)
    return str(error)


def refusal(environ):
    with pytest.raises(LaunchError) as caught:
        launch.current(environ)
    return one_line(caught.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"RANK": "8"}, ("RANK=8", "WORLD_SIZE=8")),
        ({"LOCAL_RANK": "4"}, ("LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4")),
        ({"LOCAL_WORLD_SIZE": "9"}, ("LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8")),
        ({"GROUP_RANK": "2"}, ("GROUP_RANK=2", "GROUP_WORLD_SIZE=2")),
        ({"WORLD_SIZE": ""}, ("RANK=5", "WORLD_SIZE")),
        ({"WORLD_SIZE": "0"}, ("WORLD_SIZE=0",)),
        ({"RANK": "-1"}, ("RANK='-1'",)),
        ({"RANK": "one"}, ("RANK='one'",)),
        ({"RANK": "\u0661"}, ("RANK='\u0661'",)),
        ({"WORLD_SIZE": "99999999999"}, ("WORLD_SIZE='99999999999'",)),
        ({"MASTER_PORT": "70000"}, ("MASTER_PORT=70000",)),
    ],
)
def test_torchruns_numbers_must_fit_each_other(change, named):
    text = refusal(made.torchrun(5, 1, 1, local_world=4, nodes=2) | change)
    assert all(part in text for part in named)


def test_a_rank_that_is_not_slurms_in_a_world_of_the_same_size_is_refused():
    text = refusal({**made.STEP[2], "RANK": "1", "WORLD_SIZE": "3"})
    assert "RANK=1 and SLURM_PROCID=2" in text


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_another_rank_of_slurms_is_refused_where_a_container_hides_the_step(rank):
    hidden = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}
    text = refusal({**hidden, "RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": "0"})
    assert f"RANK={rank} and SLURM_PROCID=2" in text


def test_slurms_variables_that_fit_or_say_nothing_are_no_contradiction():
    mine = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
    for theirs in (
        {"SLURM_PROCID": "2", "SLURM_NTASKS": "4"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a batch script or interactive shell
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"},  # each task forked two ranks
    ):
        assert launch.current({**theirs, **mine}).rank == 2
    agent = made.torchrun(1, 1, 0, local_world=4, nodes=1)
    assert launch.current({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", **agent}).rank == 1


def test_a_leftover_world_of_one_does_not_split_a_step_into_lone_ranks():
    text = refusal({**made.STEP[2], "RANK": "0", "WORLD_SIZE": "1"})
    assert "WORLD_SIZE=1 and SLURM_STEP_NUM_TASKS=3" in text


def test_a_pods_rank_is_not_taken_for_that_of_mpiruns_process():
    text = refusal({**made.OPEN_MPI, "RANK": "1", "WORLD_SIZE": "16", "MASTER_ADDR": "pod-0"})
    assert "WORLD_SIZE=16 and OMPI_COMM_WORLD_SIZE=4" in text


def test_a_rank_without_a_world_is_refused():
    assert "RANK=1 is set without WORLD_SIZE" in refusal({"RANK": "1"})


@pytest.mark.parametrize("half", [{"WORLD_SIZE": "4"}, {"LOCAL_RANK": "1"}])
def test_a_command_over_ranks_refuses_a_world_without_a_rank(half):
    with pytest.raises(LaunchError, match="is set without RANK: set both or neither"):
        launch.refuse_half(half)
    launch.refuse_half({"WORLD_SIZE": "1", "LOCAL_RANK": "0"})


def test_mpi_ranks_without_any_local_rank_are_told_to_export_one():
    assert "LOCAL_RANK" in refusal({"PMI_RANK": "1", "PMI_SIZE": "2"})
    assert launch.current({"PMI_RANK": "1", "PMI_SIZE": "2", "LOCAL_RANK": "1"}).local_rank == 1


NAMES = sorted({*made.STEP[0], *made.torchrun(0, 0, 0, local_world=1, nodes=1), *made.HYDRA})
VALUES = st.one_of(st.integers(-2, 20).map(str), st.text(max_size=8), st.just("n[0-3]"))


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_any_environment_gives_a_possible_place_or_one_clear_line(environ):
    try:
        me = launch.current(environ)
    except LaunchError as error:
        one_line(error)
    else:
        assert 0 <= me.rank < me.world
        assert 0 <= me.local_rank < me.local_world
        assert me.node >= 0
        assert "/" not in me.job

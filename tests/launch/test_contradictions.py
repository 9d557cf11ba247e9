"""Contradictory variables are refused; the error names both variables and both values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch import environments as made
from oddrank import LaunchError, launch


def refusal(environ):
    with pytest.raises(LaunchError) as caught:
        launch.current(environ)
    return one_line(caught.value)


def one_line(error):
    assert "\n" not in str(error)
    return str(error)


RANK_5 = made.torchrun(5, 1, 1, local_world=4, nodes=2)
# A container passes on some of the step's variables of task 2.
HIDDEN = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7", "LOCAL_RANK": "0"}
REFUSED = {
    "rank beyond the world": {**RANK_5, "RANK": "8"},
    "local rank beyond its host": {**RANK_5, "LOCAL_RANK": "4"},
    "host beyond the world": {**RANK_5, "LOCAL_WORLD_SIZE": "9"},
    "node beyond the nodes": {**RANK_5, "GROUP_RANK": "2"},
    "empty world size": {**RANK_5, "WORLD_SIZE": ""},
    "no ranks": {**RANK_5, "WORLD_SIZE": "0"},
    "negative rank": {**RANK_5, "RANK": "-1"},
    "rank in letters": {**RANK_5, "RANK": "one"},
    "digit that is not ASCII": {**RANK_5, "RANK": "\u0661"},
    "11 digits": {**RANK_5, "WORLD_SIZE": "99999999999"},
    "too many ranks": {**RANK_5, "WORLD_SIZE": str((1 << 24) + 1)},
    "port beyond the last": {**RANK_5, "MASTER_PORT": "65536"},
    "port 0": {**RANK_5, "MASTER_PORT": "0"},
    "rank without a world": {"RANK": "1"},
    "not SLURM's rank": {**made.STEP[2], "RANK": "1", "WORLD_SIZE": "3"},
    "lone rank in a step": {**made.STEP[2], "RANK": "0", "WORLD_SIZE": "1"},
    "more ranks in a step, without local ranks": {**made.STEP[2], "RANK": "3", "WORLD_SIZE": "6"},
    **{
        f"not SLURM's rank in a container, {rank}": {**HIDDEN, "RANK": rank, "WORLD_SIZE": "4"}
        for rank in ("0", "1", "3")
    },
    "pod with an mpirun inside": {**made.OPEN_MPI, "RANK": "1", "WORLD_SIZE": "16"},
    "MPI without local ranks": {"PMI_RANK": "1", "PMI_SIZE": "2"},
}


def test_numbers_that_do_not_fit_each_other_are_refused_in_one_line_that_names_them(golden):
    golden("\n".join(f"{name}: {refusal(environ)}" for name, environ in REFUSED.items()))


FITTING = {
    "same rank": ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, "2", "4"),
    "batch script or interactive shell": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "2", "4"),
    "each task forked two ranks": ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "2", "4"),
    "torchrun's agent is task 3": (
        {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "TORCHELASTIC_RUN_ID": "77"}, "1", "4"
    ),
    "MPI with a local rank": ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "1", "2"),
    "last port": ({"MASTER_PORT": "65535"}, "0", "1"),
    "most ranks": ({}, "0", str(1 << 24)),
}  # fmt: skip


def test_variables_that_fit_or_say_nothing_are_no_contradiction():
    for name, (theirs, rank, world) in FITTING.items():
        own = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": "0"}
        assert launch.current({**theirs, **own}).rank == int(rank), name


def test_a_command_over_ranks_refuses_a_world_without_a_rank():
    for half in ({"WORLD_SIZE": "4"}, {"LOCAL_RANK": "1"}):
        with pytest.raises(LaunchError, match="RANK"):
            launch.refuse_half(half)
    launch.refuse_half({"WORLD_SIZE": "1", "LOCAL_RANK": "0"})


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

"""Contradictory variables are refused; the error names both variables and both values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.told import refusal
from launch import environments as made
from oddrank import LaunchError, launch
from texts import rows

REFUSED = rows(__file__, "refused")


def test_numbers_that_do_not_fit_each_other_are_refused_in_one_line_that_names_them(golden):
    said = [(name, refusal(launch.current, made.environ(words))) for name, words in REFUSED]
    golden("\n".join(map(": ".join, said)))


FITTING = rows(__file__, "fitting")


def test_variables_that_fit_or_say_nothing_are_no_contradiction():
    for name, words, rank, world in FITTING:
        own = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": "0"}
        assert launch.current({**made.environ(words), **own}).rank == int(rank), name


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
        (_,) = str(error).splitlines()
    else:
        assert 0 <= me.rank < me.world
        assert 0 <= me.local_rank < me.local_world
        assert me.node >= 0
        assert "/" not in me.job

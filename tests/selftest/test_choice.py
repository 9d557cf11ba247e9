"""Which stages run, and what is said of those that do not."""

import pytest

from oddrank.control.stages import Stage
from oddrank.selftest.choice import Options, Row, choose, names


def row(name, **changes):
    confirms = changes.pop("confirms", "")
    return Row(lambda options: Stage(name, 1, lambda context: None, confirms=confirms), **changes)


TABLE = (
    row("environment", always=True),
    row("links", level="normal"),
    row("links_again", confirms="links", level="normal"),
    row("sums"),
    row("train", level="full"),
)


@pytest.mark.parametrize(
    ("options", "expected", "left_out"),
    [
        (
            Options(),
            "environment links links_again sums",
            {"train": "without --full"},
        ),
        (Options("full"), "environment links links_again sums train", {}),
        (
            Options("quick"),
            "environment sums",
            {"links": "--quick", "links_again": "--quick", "train": "--quick"},
        ),
        (
            Options("quick", only=frozenset({"links"})),
            "environment links links_again",
            {"sums": "--only", "train": "--only"},
        ),
        (
            Options("full", skip=frozenset({"links", "train"})),
            "environment sums",
            {"links": "--skip", "links_again": "--skip", "train": "--skip"},
        ),
    ],
)
def test_a_stage_runs_or_is_told_with_the_option_that_left_it_out(options, expected, left_out):
    choice = choose(TABLE, options)
    assert [stage.name for stage in choice.stages] == expected.split()
    assert choice.left_out == left_out


def test_only_stages_that_can_be_left_out_can_be_chosen():
    assert names(TABLE) == ("links", "sums", "train")

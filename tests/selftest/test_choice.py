"""The choice of stages, and the reasons shown for those left out."""

from oddrank.control.stages import Stage
from oddrank.selftest import Options
from oddrank.selftest.stages import TABLE as TABLE_OF_ALL
from oddrank.selftest.stages import StageRow, choose, names


def row(name, **changes):
    confirms = changes.pop("confirms", "")
    return StageRow(
        lambda options: Stage(name, 1, lambda context: None, confirms=confirms), **changes
    )


TABLE = (
    row("environment", always=True),
    row("links", depth="normal"),
    row("links_recheck", confirms="links", depth="normal"),
    row("sums"),
    row("train", depth="full"),
)


def test_a_stage_runs_or_is_told_with_the_option_that_left_it_out():
    links = ("links", "links_recheck")
    for options, expected, left_out in (
        (Options(), "environment links links_recheck sums", {"train": "without --full"}),
        (Options("full"), "environment links links_recheck sums train", {}),
        (Options("quick"), "environment sums", dict.fromkeys((*links, "train"), "--quick")),
        (
            Options("quick", only=frozenset({"links"})), "environment links links_recheck",
            {"sums": "--only", "train": "--only"},
        ),
        (
            Options("full", skip=frozenset({"links", "train"})), "environment sums",
            dict.fromkeys((*links, "train"), "--skip"),
        ),
    ):  # fmt: skip
        choice = choose(TABLE, options)
        assert [stage.name for stage in choice.stages] == expected.split(), options
        assert choice.left_out == left_out, options


def test_a_stage_that_others_need_goes_where_one_of_them_goes():
    connect = row("connect", needed_by=("links", "sums"))
    for options, runs in (
        (Options(), True),
        (Options(only=frozenset({"sums"})), True),
        (Options(only=frozenset({"files"})), False),
        (Options(skip=frozenset({"links"})), True),
        (Options(skip=frozenset({"links", "sums"})), False),
    ):
        choice = choose([connect, row("links"), row("sums"), row("files")], options)
        assert ("connect" in [stage.name for stage in choice.stages]) == runs, options
        assert ("connect" in choice.left_out) == (not runs), options
    assert names([connect, row("links")]) == ("links",)


def test_a_stage_goes_along_with_another_that_alone_is_asked_for_but_not_with_skip():
    table = [row("health", also_for=("speed",)), row("speed"), row("files")]
    for options, why in (
        (Options(only=frozenset({"speed"})), ""),
        (Options(only=frozenset({"health"})), ""),
        (Options(only=frozenset({"files"})), "--only"),
        (Options(only=frozenset({"speed"}), skip=frozenset({"health"})), "--skip"),
        (Options(skip=frozenset({"speed"})), ""),
    ):
        assert choose(table, options).left_out.get("health", "") == why, options
    assert names(table) == ("health", "speed", "files")


def test_speed_alone_knows_whose_gpu_is_shared():
    chosen = choose(TABLE_OF_ALL, Options(only=frozenset({"speed"}))).stages
    assert [stage.name for stage in chosen] == ["environment", "health", "speed", "speed_recheck"]


def test_the_counters_are_read_before_all_that_could_raise_them():
    stages = choose(TABLE_OF_ALL, Options("full")).stages
    assert [stage.name for stage in stages][:2] == ["environment", "counters"]
    assert stages[-1].name == "counters_recheck"


def test_only_stages_that_can_be_left_out_can_be_chosen():
    assert names(TABLE) == ("links", "sums", "train")

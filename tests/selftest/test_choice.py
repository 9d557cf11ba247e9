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
    row("links"),
    row("links_recheck", confirms="links"),
    row("sums"),
    row("train"),
)


def chosen(only="", skip=""):
    return Options(only=frozenset(only.split()), skip=frozenset(skip.split()))


def test_a_stage_runs_or_is_told_with_the_option_that_left_it_out():
    links = ("links", "links_recheck")
    for options, expected, left_out in (
        (Options(), "environment links links_recheck sums train", {}),
        (chosen(only="links"), "environment links links_recheck",
         {"sums": "--only", "train": "--only"}),
        (chosen(skip="links train"), "environment sums",
         dict.fromkeys((*links, "train"), "--skip")),
    ):  # fmt: skip
        choice = choose(TABLE, options)
        assert [stage.name for stage in choice.stages] == expected.split(), options
        assert choice.left_out == left_out, options
    assert names(TABLE) == ("links", "sums", "train")  # environment can't be left out


def test_a_stage_that_others_need_goes_where_one_of_them_goes():
    connect = row("connect", needed_by=("links", "sums"))
    for options, runs in (
        (chosen(), True), (chosen(only="sums"), True), (chosen(only="files"), False),
        (chosen(skip="links"), True), (chosen(skip="links sums"), False),
    ):  # fmt: skip
        choice = choose([connect, row("links"), row("sums"), row("files")], options)
        assert ("connect" in [stage.name for stage in choice.stages]) == runs, options
        assert ("connect" in choice.left_out) == (not runs), options
    assert names([connect, row("links")]) == ("links",)


def test_a_stage_goes_along_with_another_that_alone_is_asked_for_but_not_with_skip():
    table = [row("health", also_for=("speed",)), row("speed"), row("files")]
    for options, why in (
        (chosen(only="speed"), ""), (chosen(only="health"), ""), (chosen(only="files"), "--only"),
        (chosen(only="speed", skip="health"), "--skip"), (chosen(skip="speed"), ""),
    ):  # fmt: skip
        assert choose(table, options).left_out.get("health", "") == why, options
    assert names(table) == ("health", "speed", "files")


def test_speed_alone_knows_whose_gpu_is_shared_and_counters_are_read_before_what_raises_them():
    stages = [stage.name for stage in choose(TABLE_OF_ALL, chosen(only="speed")).stages]
    assert stages == ["environment", "health", "speed", "speed_recheck"]
    stages = [stage.name for stage in choose(TABLE_OF_ALL, Options("full")).stages]
    assert (stages[:2], stages[-1]) == (["environment", "counters"], "counters_recheck")

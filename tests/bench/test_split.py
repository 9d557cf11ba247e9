"""bench run --split: how ranks are divided, groups that measure at once, and which one is slow."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from job import job
from oddrank.bench import findings, split
from oddrank.bench.row import Row
from oddrank.bench.split import Split
from oddrank.control.root import RankState
from oddrank.control.stages import RunState
from oddrank.errors import OddrankError


def launch(world=8, nodes=2):
    return SimpleNamespace(world=world, nodes=nodes, local_world=world // nodes)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("node", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("rail", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("AND 0x3", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("&3", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("0b11", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("mod 2", [(0, 2, 4, 6), (1, 3, 5, 7)]),
        ("%2", [(0, 2, 4, 6), (1, 3, 5, 7)]),
        ("OR 0x3", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("DIV 4", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("/ 4", [(0, 1, 2, 3), (4, 5, 6, 7)]),
    ],
)
def test_ranks_are_divided_as_nccl_tests_does(text, groups):
    wanted = split.parse(text)
    assert split.teams_of([wanted.color(r, r // 4, r % 4) for r in range(8)]) == groups
    assert wanted.size(launch()) == len(groups[0])


@pytest.mark.parametrize("text", ["", "nodes", "MOD", "MOD -2", "XOR 3", "MOD 0", "DIV 0x0", "3.5"])
def test_what_is_no_split_is_refused_in_one_line(text):
    with pytest.raises(OddrankError, match="write node, rail, or AND"):
        split.parse(text)


def test_groups_of_different_sizes_are_refused():
    with pytest.raises(OddrankError, match="of 7 ranks it makes groups of 3 and 4"):
        split.parse("MOD 2").size(launch(7, 1))
    with pytest.raises(OddrankError, match="nodes have different numbers of ranks"):
        Split(split.NODE).size(SimpleNamespace(world=7, nodes=2, local_world=4))


ROW = Row("nccl", "all_reduce", "float32", "sum", 1 << 20, 1 << 18, True, 2, "ok", iterations=20)


def row(*passes_of_groups, backend="nccl"):
    rows, groups = [], []
    for i, passes in enumerate(passes_of_groups):
        median = sorted(passes)[len(passes) // 2]
        one = replace(ROW, backend=backend, mean_us=median, median_us=median)
        rows.append(replace(one, busbw_GBps=1e3 / median))
        groups.append((2 * i, 2 * i + 1))
    return split.joined(rows, groups, [[[t] for t in passes] for passes in passes_of_groups])


USUAL = (100.0, 101.0, 99.0)


def test_a_row_has_the_figures_of_each_group_and_those_of_the_slowest_as_its_own():
    made = row(USUAL, (150.0, 151.0, 149.0), USUAL)
    assert made.mean_us == 150.0
    assert [group["ranks"] for group in made.groups] == [[0, 1], [2, 3], [4, 5]]
    assert made.groups[1]["passes_us"] == [150.0, 151.0, 149.0]
    assert split.groups_text(made) == "busbw GB/s of groups 0: 10.000, 1: 6.667, 2: 10.000"


def test_the_group_that_is_slow_in_every_pass_is_named():
    rows = [row(USUAL, USUAL, (150.0, 151.0, 149.0), USUAL)] * 3
    slow = split.slow_group(rows)
    assert (slow.number, slow.ranks, slow.sure) == (2, (4, 5), True)
    assert slow.by == pytest.approx(0.5)
    run = RunState(8, {rank: RankState(rank, "n1", rank) for rank in range(8)})
    found = findings.slow_group(run, slow)
    assert (found.condition, found.cause, found.who.ranks) == ("slow", "slow-group", (4, 5))
    assert "50% longer" in found.what


def test_one_slow_pass_or_one_slow_case_names_no_group():
    assert split.slow_group([row(USUAL, (150.0, 101.0, 150.0), USUAL)]) is None
    fast, slow = row(USUAL, USUAL, USUAL), row(USUAL, (150.0, 150.0, 150.0), USUAL)
    assert split.slow_group([slow, fast, fast]) is None
    assert split.slow_group([row(USUAL, (115.0,) * 3, USUAL, backend="c10d:gloo")]) is None
    assert split.slow_group([row(USUAL, (115.0,) * 3, USUAL)]) is not None
    assert split.slow_group([ROW]) is None
    assert split.slow_group([row((100.0,), (150.0,), (100.0,))]) is None


def test_of_two_groups_none_is_named():
    slow = split.slow_group([row(USUAL, (150.0, 151.0, 149.0))] * 3)
    run = RunState(4, {rank: RankState(rank, "n1", rank) for rank in range(4)})
    found = findings.slow_group(run, slow)
    assert (found.condition, found.who.ranks, found.confidence.level) == ("unknown", (), "low")


FAST = ("--budget", "6", "--precision", "20%")


@pytest.mark.needs("torch")
@pytest.mark.smoke
def test_groups_over_gloo_measure_at_once_and_each_has_its_figures():
    command = ("bench", "run", "--sizes", "4K", "--collectives", "all_reduce,all_gather",
               "--split", "DIV 2", *FAST)  # fmt: skip
    verdict = job(4, command=command, deadline=60)
    assert verdict.report is not None, str(verdict)
    rows = verdict.report["data"]["rows"]
    assert [row["n"] for row in rows] == [2, 2]
    for one in rows:
        assert one["check"] == "ok"
        assert [group["ranks"] for group in one["groups"]] == [[0, 1], [2, 3]]
        assert all(group["median_us"] > 0 for group in one["groups"])
        assert one["mean_us"] == max(group["mean_us"] for group in one["groups"])
    assert "2 groups of 2 ranks" in verdict.output


@pytest.mark.needs("torch")
def test_a_rank_with_wrong_values_is_named_in_its_group():
    stage = "all_reduce float32 4 KiB"
    command = ("bench", "run", "--sizes", "4K", "--split", "MOD 2", *FAST)
    verdict = job(4, value=3, at=stage, command=command, deadline=60)
    assert verdict.names(rank=3, stage=stage), str(verdict)
    (one,) = verdict.report["data"]["rows"]
    assert [group["check"] for group in one["groups"]] == ["ok", "wrong"]


@pytest.mark.needs("torch")
def test_a_split_that_the_ranks_do_not_fit_ends_before_they_connect():
    verdict = job(3, command=("bench", "run", "--split", "MOD 2", "--sizes", "8"), deadline=90)
    assert verdict.report is None
    assert "of 3 ranks it makes groups of 1 and 2" in verdict.output

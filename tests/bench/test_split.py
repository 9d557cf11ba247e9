"""bench run --split: how ranks are divided, groups that measure at once, and which one is slow."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bench.told import refusal, refusals, told
from job import job
from oddrank.bench import findings, split
from oddrank.bench.row import Row
from oddrank.bench.split import Split
from oddrank.control.root import RankState
from oddrank.control.stages import RunState


def launch(world=8, nodes=2):
    return SimpleNamespace(world=world, nodes=nodes, local_world=world // nodes)


def test_ranks_are_divided_as_nccl_tests_does():
    halves, rails = [(0, 1, 2, 3), (4, 5, 6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)]
    odd = [(0, 2, 4, 6), (1, 3, 5, 7)]
    for text, groups in {
        "node": halves, "OR 0x3": halves, "DIV 4": halves, "/ 4": halves, "mod 2": odd, "%2": odd,
        "rail": rails, "AND 0x3": rails, "&3": rails, "0b11": rails,
    }.items():  # fmt: skip
        wanted = split.parse(text)
        assert split.teams_of([wanted.color(r, r // 4, r % 4) for r in range(8)]) == groups, text
        assert wanted.size(launch()) == len(groups[0]), text


def test_what_is_no_split_or_makes_groups_of_different_sizes_is_refused(golden):
    said = refusals(["", "nodes", "MOD", "MOD -2", "XOR 3", "MOD 0", "DIV 0x0", "3.5"], split.parse)
    odd = refusal(split.parse("MOD 2").size, launch(7, 1))
    uneven = SimpleNamespace(world=7, nodes=2, local_world=4)
    golden("\n".join([said, odd, refusal(Split(split.NODE).size, uneven)]))


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


def finding_of(slow, world):
    run = RunState(world, {rank: RankState(rank, "n1", rank) for rank in range(world)})
    return findings.slow_group(run, slow)


def test_the_group_that_is_slow_in_every_pass_is_named_and_of_two_none(golden):
    slow = split.slow_group([row(USUAL, USUAL, (150.0, 151.0, 149.0), USUAL)] * 3)
    assert (slow.number, slow.ranks, slow.sure) == (2, (4, 5), True)
    assert slow.by == pytest.approx(0.5)
    found = finding_of(slow, 8)
    assert (found.condition, found.cause, found.who.ranks) == ("slow", "slow-group", (4, 5))
    two = finding_of(split.slow_group([row(USUAL, (150.0, 151.0, 149.0))] * 3), 4)
    assert (two.condition, two.who.ranks, two.confidence.level) == ("unknown", (), "low")
    golden(told(found, two))


def test_one_slow_pass_or_one_slow_case_names_no_group():
    fast, slow = row(USUAL, USUAL, USUAL), row(USUAL, (150.0, 150.0, 150.0), USUAL)
    for rows in (
        [row(USUAL, (150.0, 101.0, 150.0), USUAL)],
        [slow, fast, fast],
        [row(USUAL, (115.0,) * 3, USUAL, backend="c10d:gloo")],
        [ROW],
        [row((100.0,), (150.0,), (100.0,))],
    ):
        assert split.slow_group(rows) is None, rows
    assert split.slow_group([row(USUAL, (115.0,) * 3, USUAL)]) is not None


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

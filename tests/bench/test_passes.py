"""Passes to the cases of a sweep, and how often ranks agree in them."""

import io
import re
from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from bench.patched import patched
from job import job
from measured_rows import result
from oddrank.bench.backend import Block
from oddrank.bench.case import Case
from oddrank.bench.plan import in_turn
from oddrank.bench.row import Table, summarise
from oddrank.bench.sampling import Series, StoppingRule, measure
from texts import texts

CASES = [Case("all_reduce", "float32", size) for size in (8, 16)]
TWO_SIZES = ("bench", "run", "--sizes", "1K,4K", "--budget", "15", "--precision", "0.01%")


def test_all_cases_come_between_two_passes_to_one():
    told = [(one_pass.index, one_pass.number) for one_pass in in_turn(CASES, 2)]
    assert told == [(0, 1), (1, 1), (0, 2), (1, 2)]
    names = [one_pass.name for one_pass in in_turn(CASES, 2)]
    assert names[0] == str(CASES[0])
    assert len(set(names)) == len(names)


def test_what_two_passes_agree_on_may_be_chance():
    known = [Series(samples=[[10.0] * 20] * n).is_known(0.01) for n in (1, 2, 3)]
    assert known == [False, False, True]
    assert not Series(samples=[[10.0] * 20] * 3 + [[11.0] * 20]).is_known(0.01)


def shown_after(stream, times, cut=99):
    """Returns the table of a sweep whose times shrink from pass to pass."""
    table, rows = Table(stream), {}
    for one_pass in in_turn(CASES, times)[:cut]:
        us = 10.0 * (one_pass.index + 1) + 100 / one_pass.number
        took = result(*[[us]] * one_pass.number, backend="nccl", mean=us)
        rows[one_pass.index] = summarise(one_pass.case, {0: took, 1: took}, 2)
        table.add(one_pass, rows[one_pass.index])
    table.end(rows.values())
    return stream.getvalue().splitlines()


def figures(lines):
    return [re.search(r" (\d+\.\d) .* ok$", line)[1] for line in lines if line.endswith("ok")]


def test_a_row_is_shown_at_once_and_as_it_is_at_the_end(golden):
    lines = shown_after(io.StringIO(), 4)
    assert figures(lines) == ["110.0", "120.0", "35.0", "45.0"]
    golden("\n".join(lines))
    # A case of one pass is shown once.
    assert figures(shown_after(io.StringIO(), 1)) == ["110.0", "120.0"]
    assert figures(shown_after(io.StringIO(), 4, cut=2)) == ["110.0", "120.0"]
    assert figures(shown_after(io.StringIO(), 4, cut=3)) == ["110.0", "120.0", "60.0", "120.0"]


@pytest.mark.needs("torch")
def test_what_hurts_one_pass_to_a_case_is_not_taken_for_the_case():
    late = "late:rank=1,stage=all_reduce float32 4 KiB (2),seconds=0.02"
    verdict = job(2, command=TWO_SIZES, inject=late, deadline=90)
    assert verdict.healthy(), str(verdict)
    row = verdict.report["data"]["rows"][1]
    assert row["passes"] >= 3
    assert row["median_us"] < 20_000
    assert row["error"] > 0.2  # one pass differed from the others


@pytest.mark.needs("torch")
def test_a_case_whose_later_passes_never_came_has_those_before():
    kill = "kill:rank=1,stage=all_reduce float32 4 KiB (2)"
    verdict = job(2, command=TWO_SIZES, inject=kill, deadline=90)
    assert verdict.names(rank=1, stage="all_reduce float32 4 KiB (2)"), str(verdict)
    assert [row["passes"] for row in verdict.report["data"]["rows"]] == [2, 1]


@pytest.mark.needs("torch")
def test_four_ranks_agree_once_a_block_and_a_few_times_a_pass():
    # Rank 0 prints how often it agreed in each pass, and after how many blocks.
    counting = patched(texts(__file__)["counting"])
    command = ("bench", "run", "--sizes", "4K", "--budget", "12", "--precision", "0.01%")
    verdict = job(4, command=command, launcher=counting, deadline=90)
    assert verdict.healthy(), str(verdict)
    found = re.findall(r"pass (\d+) of \d+ over (\w+): (\d+) (\d+)", verdict.output)
    assert len(found) > 3
    for number, over, agreements, blocks in found:
        # All can run it; was a value wrong, in the first pass and after the last.
        beside = 2 * (number == "1") + (over == "True" and number != "1")
        assert int(agreements) == int(blocks) + beside, (number, over)


@pytest.mark.needs("torch")
def test_six_ranks_connect_each_to_their_neighbours_and_not_to_all():
    # Each rank prints how many connections it has to other ranks' gloo.
    connections = patched(texts(__file__)["connections"])
    command = ("bench", "run", "--sizes", "8", "--budget", "2", "--precision", "100%")
    verdict = job(6, command=command, launcher=connections, deadline=60)
    assert verdict.healthy(), str(verdict)
    seen = [int(number) for number in re.findall(r"connections: (\d+)", verdict.output)]
    assert len(seen) == 6
    assert max(seen) < 5, seen


class Group:
    """One rank of many, whose agreements take no time."""

    rank = 1
    context = SimpleNamespace(step=lambda text: None)

    def __init__(self, slowest: float) -> None:
        self.agreements, self.slowest = 0, slowest

    def largest(self, values: Any) -> "array[float]":
        self.agreements += 1
        return array("d", [*values[:-3], max(values[-3], self.slowest), *values[-2:]])


class Operation:
    """Its mean is shorter than its samples."""

    def __init__(self) -> None:
        self.blocks: list[int] = []

    def block(self, n: int) -> Block:
        self.blocks.append(n)
        return Block(90.0, [100.0] * n)


def test_every_rank_decides_alike_after_one_agreement_a_block_and_the_slowest_counts():
    case = Case("all_reduce", "float32", 8)
    for slowest in (90.0, 95.0):
        found, group, operation = Series(), Group(slowest), Operation()
        measure(found, group, operation, case, StoppingRule(0.01, 60))  # type: ignore[arg-type]
        assert group.agreements == len(operation.blocks)
        assert found.iterations == len(found.samples[0]) > 0
        assert found.total == pytest.approx(slowest * found.iterations)

"""How often the ranks agree: hundreds of them need milliseconds for each agreement."""

import re
from array import array
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from job import job
from launchers import env
from oddrank.bench.backend import Block
from oddrank.bench.case import Case
from oddrank.bench.sampling import StoppingRule, measure

# Runs the command; rank 0 prints how often it agreed in each pass, and after how many blocks.
COUNTING = """
import os, sys
from oddrank import cli, process_group
from oddrank.bench import sampling, sweep

counts = {"agreements": 0, "blocks": 0}

def counting(owner, method, name):
    call = getattr(owner, method)
    def counted(*arguments, **options):
        counts[name] += 1
        return call(*arguments, **options)
    setattr(owner, method, counted)

counting(process_group.Group, "_reduce", "agreements")
counting(process_group.Group, "said_by", "agreements")
counting(sampling.StoppingRule, "after", "blocks")
measure = sweep._measure
def told(context, one_pass, options):
    counts.update(agreements=0, blocks=0)
    result = measure(context, one_pass, options)
    if os.environ["RANK"] == "0":
        of = f"{one_pass.number} of {one_pass.of} over {result['over']}"
        print(f"pass {of}:", counts["agreements"], counts["blocks"], flush=True)
    return result
sweep._measure = told
sys.argv[0] = "oddrank"
cli.main()
"""


def counting(order):
    return env(replace(order, tool=["-c", COUNTING, *order.tool[2:]]))


@pytest.mark.needs("torch")
def test_four_ranks_agree_once_a_block_and_a_few_times_a_pass():
    command = ("bench", "run", "--sizes", "4K", "--budget", "12", "--precision", "0.01%")
    verdict = job(4, command=command, launcher=counting, deadline=90)
    assert verdict.healthy(), str(verdict)
    found = re.findall(r"pass (\d+) of \d+ over (\w+): (\d+) (\d+)", verdict.output)
    assert len(found) > 3
    for number, over, agreements, blocks in found:
        # All can run it; was a value wrong, in the first pass and after the last; the arrivals.
        beside = 1 + 2 * (number == "1") + (over == "True" and number != "1")
        assert int(agreements) == int(blocks) + beside, (number, over)


class Group:
    """One rank of many, whose agreements take no time."""

    rank = 1
    context = SimpleNamespace(step=lambda text: None, timestamps=lambda count: None)

    def __init__(self) -> None:
        self.agreements = 0

    def largest(self, values: Any) -> "array[float]":
        self.agreements += 1
        return array("d", values)


class Operation:
    """Its mean is shorter than its samples."""

    def __init__(self) -> None:
        self.blocks: list[int] = []

    def block(self, timestamps: Any, n: int) -> Block:
        self.blocks.append(n)
        return Block(90.0, [100.0] * n)


def test_every_rank_decides_alike_after_one_agreement_a_block():
    group, operation = Group(), Operation()
    case = Case("all_reduce", "float32", 8)
    found = measure(group, operation, case, StoppingRule(0.01, 60))  # type: ignore[arg-type]
    assert group.agreements == len(operation.blocks)
    assert found.iterations == len(found.samples) > 0
    assert found.total == pytest.approx(90.0 * found.iterations)


def test_the_mean_of_a_block_is_that_of_its_slowest_rank():
    group, operation = Group(), Operation()
    group.largest = (
        lambda values: array(  # type: ignore[method-assign]
            "d", [*values[:-3], 95.0, *values[-2:]]
        )
    )
    case = Case("all_reduce", "float32", 8)
    found = measure(group, operation, case, StoppingRule(0.01, 60))  # type: ignore[arg-type]
    assert found.total == pytest.approx(95.0 * found.iterations)

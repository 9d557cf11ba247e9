"""How often ranks agree, and with how many they talk: hundreds need milliseconds for each."""

import re
from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from bench.patched import patched
from job import job
from oddrank.bench.backend import Block
from oddrank.bench.case import Case
from oddrank.bench.sampling import StoppingRule, measure

# Rank 0 prints how often it agreed in each pass, and after how many blocks.
COUNTING = """
from oddrank import process_group
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
"""


@pytest.mark.needs("torch")
def test_four_ranks_agree_once_a_block_and_a_few_times_a_pass():
    command = ("bench", "run", "--sizes", "4K", "--budget", "12", "--precision", "0.01%")
    verdict = job(4, command=command, launcher=patched(COUNTING), deadline=90)
    assert verdict.healthy(), str(verdict)
    found = re.findall(r"pass (\d+) of \d+ over (\w+): (\d+) (\d+)", verdict.output)
    assert len(found) > 3
    for number, over, agreements, blocks in found:
        # All can run it; was a value wrong, in the first pass and after the last; the arrivals.
        beside = 1 + 2 * (number == "1") + (over == "True" and number != "1")
        assert int(agreements) == int(blocks) + beside, (number, over)


# Each rank prints how many connections it has to other ranks' gloo.
CONNECTIONS = r"""
from oddrank import process_group

def connections():
    # gloo listens on a port of its own in each rank; both ends of a connection know one of them.
    fds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
           if os.path.islink(f"/proc/self/fd/{fd}")]
    inodes = {link[8:-1] for link in fds if link.startswith("socket:[")}
    with open("/proc/self/net/tcp") as file:
        lines = [line.split() for line in file][1:]
    return sum(fields[9] in inodes and fields[3] == "01" for fields in lines)

made = process_group.Group.__init__
def make(self, *arguments):
    before = connections()
    made(self, *arguments)
    self.smallest([1.0])  # a ring
    # A line in one write: where Python does not buffer, print() writes each argument by itself.
    print(f"connections: {connections() - before}\n", end="", flush=True)
process_group.Group.__init__ = make
"""


@pytest.mark.needs("torch")
def test_six_ranks_connect_each_to_their_neighbours_and_not_to_all():
    command = ("bench", "run", "--sizes", "8", "--budget", "2", "--precision", "100%")
    verdict = job(6, command=command, launcher=patched(CONNECTIONS), deadline=60)
    assert verdict.healthy(), str(verdict)
    seen = [int(number) for number in re.findall(r"connections: (\d+)", verdict.output)]
    assert len(seen) == 6
    assert max(seen) < 5, seen


class Group:
    """One rank of many, whose agreements take no time."""

    rank = 1
    context = SimpleNamespace(step=lambda text: None, timestamps=lambda count: None)

    def __init__(self, slowest: float) -> None:
        self.agreements, self.slowest = 0, slowest

    def largest(self, values: Any) -> "array[float]":
        self.agreements += 1
        return array("d", [*values[:-3], max(values[-3], self.slowest), *values[-2:]])


class Operation:
    """Its mean is shorter than its samples."""

    def __init__(self) -> None:
        self.blocks: list[int] = []

    def block(self, timestamps: Any, n: int) -> Block:
        self.blocks.append(n)
        return Block(90.0, [100.0] * n)


def test_every_rank_decides_alike_after_one_agreement_a_block_and_the_slowest_counts():
    case = Case("all_reduce", "float32", 8)
    for slowest in (90.0, 95.0):
        group, operation = Group(slowest), Operation()
        found = measure(group, operation, case, StoppingRule(0.01, 60))  # type: ignore[arg-type]
        assert group.agreements == len(operation.blocks)
        assert found.iterations == len(found.samples) > 0
        assert found.total == pytest.approx(slowest * found.iterations)

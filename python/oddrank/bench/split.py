"""`bench run --split`: groups of ranks that measure at once, and whether one of them is slow."""

import operator
import re
import statistics
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oddrank.bench.data import Row, connected_of
from oddrank.control.stages import RunState
from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, Who, grouped, size_text
from oddrank.finding import Row as CauseRow
from oddrank.launch import Launch
from oddrank.machine import node_number
from oddrank.peers import LINE
from oddrank.process_group import Group

NODE, RAIL = "node", "rail"
# NCCL_TESTS_SPLIT's operations.
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "AND": operator.and_, "OR": operator.or_, "MOD": operator.mod, "DIV": operator.floordiv,
}  # fmt: skip
_FORMS = "node, rail, or AND, OR, MOD, DIV and a number, as in 'AND 0x7' or 'DIV 8'"
# Smallest slowdown that names a group: of hosts, which other jobs use too, and of GPUs. The line
# lies at two thirds of it: a line at the effect itself would find it half of the time.
_EFFECT_HOST, _EFFECT_GPU = 0.3, 0.1
# Share of the cases in which a slow group is slow.
_MOST_CASES = 2 / 3
FEWEST_PASSES = 3
_MOST_TOLD = 16
_OF_A_GROUP = ("mean_us", "median_us", "algbw_GBps", "busbw_GBps", "check")
# fmt: off
SLOW_GROUP = CauseRow(
    "slow-group", "slow", "group {number} ({group}) takes {by:.0%} longer than the other groups",
    ("medium", "{groups} groups at once, {passes} passes"),
    ("oddrank bench pairs, launched in the same way: which link or rank of the group",
     "oddrank selftest on its hosts: GPUs, links and clocks"))
ONE_OF_TWO = replace(
    SLOW_GROUP, condition="unknown", sure=("low", "two groups: no third tells what is usual"),
    next=("divide the ranks into more groups",))
# fmt: on


@dataclass(frozen=True)
class Split:
    """How ranks are divided. operation: NODE, RAIL, or one of _OPERATIONS with `number`."""

    operation: str
    number: int = 0

    def __str__(self) -> str:
        numbered = self.operation in _OPERATIONS
        return f"{self.operation} {self.number}" if numbered else self.operation

    def color(self, rank: int, node: int, local_rank: int) -> int:
        """Returns the number that all ranks of a group share."""
        if self.operation in _OPERATIONS:
            return _OPERATIONS[self.operation](rank, self.number)
        return node if self.operation == NODE else local_rank

    def size(self, launch: Launch) -> int:
        """Returns the ranks of each group; OddrankError if groups have different sizes.
        For node and rail it trusts the launcher; `divide` looks."""
        if self.operation in (NODE, RAIL):
            whole = launch.nodes * launch.local_world == launch.world
            sizes = {launch.local_world if self.operation == NODE else launch.nodes}
            if not whole:
                raise _uneven(self, "nodes have different numbers of ranks")
        else:
            colors = Counter(self.color(rank, 0, 0) for rank in range(launch.world))
            sizes = set(colors.values())
        if len(sizes) > 1:
            text = " and ".join(map(str, sorted(sizes)))
            raise _uneven(self, f"of {launch.world} ranks it makes groups of {text}")
        return sizes.pop()


def parse(text: str) -> Split:
    """Reads --split; OddrankError if it is none of the forms."""
    word = text.strip()
    if word.lower() in (NODE, RAIL):
        return Split(word.lower())
    match = re.fullmatch(r"([A-Z]+) *(0X[0-9A-F]{1,8}|[0-9]{1,9})", word.upper(), re.ASCII)
    if match is None or match[1] not in _OPERATIONS:
        raise OddrankError(f"{text[:40]!r} is not a split: write {_FORMS}")
    number = int(match[2], 16 if match[2].startswith("0X") else 10)
    if number == 0 and match[1] in ("MOD", "DIV"):
        raise OddrankError(f"{text[:40]!r}: a division by 0; write {_FORMS}")
    return Split(match[1], number)


def divide(world: Group, split: Split) -> tuple[Group, int]:
    """Returns this rank's group and its number. All ranks call it together.

    OddrankError on all ranks if the groups have not the size that the plan assumes.
    """
    launch = world.context.launch
    mine = array("d", [-1.0] * world.world)
    mine[world.rank] = split.color(world.rank, node_number(launch), launch.local_rank)
    teams = teams_of(world.largest(mine))
    sizes = {len(team) for team in teams}
    if sizes != {split.size(launch)}:
        raise _uneven(split, f"groups have {' and '.join(map(str, sorted(sizes)))} ranks")
    (number,) = (i for i, team in enumerate(teams) if world.rank in team)
    return world.part(f"group {number}", 1, teams[number]), number


def teams_of(colors: Sequence[float]) -> list[tuple[int, ...]]:
    """Returns the ranks of each group, in the order of their first ranks."""
    teams = grouped((color, rank) for rank, color in enumerate(colors))
    return [*map(tuple, teams.values())]


def _uneven(split: Split, why: str) -> OddrankError:
    return OddrankError(f"--split {split}: {why}; groups need equally many ranks to be compared")


def groups_of(run: RunState) -> list[tuple[int, ...]]:
    """Returns the ranks of each group, by its number; one group of all ranks without --split."""
    ranks = sorted(connected_of(run).items())
    found = grouped((connected.get("group", 0), rank) for rank, connected in ranks)
    return [tuple(found[number]) for number in sorted(found)]


def joined(
    rows: Sequence[Row],
    groups: Sequence[tuple[int, ...]],
    passes: Sequence[Sequence[Sequence[float]]],
) -> Row:
    """Returns the row of a case from its groups' rows: the slowest one's, with all figures.

    passes: times of each pass, by group.
    """
    timed = [row for row in rows if row.mean_us is not None]
    slowest = max(timed, key=lambda row: row.mean_us or 0.0) if timed else rows[0]
    figures = tuple(
        {
            "ranks": list(ranks),
            **{name: getattr(row, name) for name in _OF_A_GROUP},
            "passes_us": [round(statistics.median(one), 3) for one in times if one],
        }
        for row, ranks, times in zip(rows, groups, passes, strict=True)
    )
    wrong = any(row.check == "wrong" for row in rows)
    return replace(
        slowest,
        check="wrong" if wrong else slowest.check,
        wrong=sum(row.wrong for row in rows),
        groups=figures,
    )


def slow_group(run: RunState, rows: Sequence[Row]) -> list[Finding]:
    """Returns a finding if one group is slower than the others' median in most cases.
    Counts a case if every one of FEWEST_PASSES or more passes is slower by more than the line."""
    cases = [
        row
        for row in rows
        if row.bytes and len(row.groups) > 1
        if all(one["median_us"] and len(one["passes_us"]) >= FEWEST_PASSES for one in row.groups)
    ]
    found: list[tuple[float, int, list[Row]]] = []
    for number in range(len(cases[0].groups) if cases else 0):
        lasting = [_least_and_usual(row.groups, number) for row in cases]
        effects = [_EFFECT_HOST if "gloo" in row.backend else _EFFECT_GPU for row in cases]
        slow = [
            row
            for row, (least, _), effect in zip(cases, lasting, effects, strict=True)
            if least > effect * LINE
        ]
        if len(slow) >= _MOST_CASES * len(cases):
            found.append((statistics.median(usual for _, usual in lasting), number, slow))
    return [_finding(run, *max(found), len(cases))] if found else []


def _finding(run: RunState, by: float, number: int, slow: Sequence[Row], cases: int) -> Finding:
    """Names the group that takes longer by the share `by` in `slow` of all cases.
    With two groups, no third one shows which time is usual."""
    row = slow[-1]
    own, who = row.groups[number], run.who(row.groups[number]["ranks"])
    others = [group["median_us"] for i, group in enumerate(row.groups) if i != number]
    passes = min(len(row.groups[number]["passes_us"]) for row in slow)
    sure = len(others) > 1
    size = size_text(row.bytes, exact=True)
    case = f"{row.collective} {row.dtype} {size}, the others' median beside it"
    median = statistics.median(others)
    found = (SLOW_GROUP if sure else ONE_OF_TWO).found(
        who if sure else Who("rank"),
        Evidence(case, "median time", own["median_us"], "us", median),
        Evidence(f"slower in every pass of {len(slow)} of {cases} cases", "groups at once"),
        number=number, group=who, by=by, groups=len(row.groups), passes=passes,
    )  # fmt: skip
    return replace(found, stage="sweep")


def _least_and_usual(groups: Sequence[Mapping[str, Any]], number: int) -> tuple[float, float]:
    """Returns by which share a group is slower than the others' median: best pass, all passes."""
    own, *others = groups[number], *groups[:number], *groups[number + 1 :]
    passes = zip(own["passes_us"], *(one["passes_us"] for one in others), strict=False)
    shares = [time / statistics.median(other) - 1 for time, *other in passes]
    usual = own["median_us"] / statistics.median(one["median_us"] for one in others) - 1
    return min(shares, default=0.0), usual


def groups_text(row: Row) -> str:
    """Returns each group's busbw as text, or the slowest and the fastest if they are many."""
    figures = [(group["busbw_GBps"], i) for i, group in enumerate(row.groups)]
    known = [(busbw, i) for busbw, i in figures if busbw is not None]
    many = len(known) > _MOST_TOLD
    shown = [min(known), max(known)] if many else known
    text = ", ".join(f"{i}: {busbw:.3f}" for busbw, i in shown)
    return f"busbw GB/s of groups {text}{f' of {len(known)}' * many}" if known else ""

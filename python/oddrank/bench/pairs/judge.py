"""Judges the links that the ranks measured: names only links that are slow both times.

Comparing a rank with the others of its node shows whether it alone is slow, or all of the node's
ranks, or the same local rank on all nodes.
"""

import gc
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from oddrank.bench.pairs import findings, matrix
from oddrank.bench.pairs.matrix import Cell, Judgement, Passes, Suspect, Unit, log_rates
from oddrank.bench.pairs.schedule import MOST_FOR_ALL, Teams, Where, place_of
from oddrank.control.stages import RunState, nodes_of
from oddrank.finding import Finding, grouped
from oddrank.peers import LINE

# Smallest effect looked for in latencies, as a share of their inverse: twice as long.
_LATENCY_EFFECT = 0.5


@dataclass(frozen=True)
class Matrix:
    """One kind of figure for one kind of links: (from, to) -> figures, one list a pass.

    groups: the ranks of each number in a cell. shared: ranks shared their node's network card with
    others. nodes: the ranks of each node, if the cells are inside nodes.
    """

    unit: Unit
    where: Where
    groups: Teams
    passes: Passes
    shared: bool = False
    nodes: Teams = ()

    def judge(self, effect: float) -> Judgement:
        directed = self.unit == "GB/s"
        parts = matrix.parts_of(self.passes, self.groups, directed=directed, nodes=self.nodes)
        members = len({end for cell in self.passes for end in cell})
        least = effect if directed else _LATENCY_EFFECT
        return matrix.judge(self.rates, parts, least, members, shared=self.shared)

    @cached_property
    def rates(self) -> Passes:
        """Returns the figures with larger ones better: inverts latencies."""
        if self.unit == "GB/s":
            return self.passes
        return {
            cell: [[1 / value for value in repeats] for repeats in seen]
            for cell, seen in self.passes.items()
        }


@dataclass(frozen=True)
class Measurement:
    """nodes: the ranks of each node. between: figures between nodes, all ranks of a node together.

    judged: every matrix and its judgement. Between nodes of several ranks there are two matrices:
    one of the nodes, one of their single ranks.
    """

    nodes: Teams
    between: Mapping[Unit, Passes]
    judged: Mapping[tuple[Unit, Where], tuple[Matrix, Judgement]]

    @staticmethod
    def at(run: RunState, stage: str, effect: float) -> "Measurement":
        nodes, ranks = nodes_of(run), [(rank,) for rank in range(run.world)]
        between: dict[Unit, Passes] = {}
        matrices: list[Matrix] = []
        at = place_of(nodes)
        for unit in get_args(Unit):
            seen = _measured(run, stage, unit)
            # The passes of single ranks, by pair of nodes.
            passes = sorted(seen["nodes"].items())
            together = grouped(((at[a][0], at[b][0]), one) for (a, b), one in passes)
            between[unit] = {cell: _combine(of, unit) for cell, of in together.items()}
            single = seen["ranks"]
            shared = not single and max(map(len, nodes), default=0) > 1
            if shared:
                single = {cell: _whole(of, unit) for cell, of in seen["nodes"].items()}
            matrices += [
                Matrix(unit, "nodes", nodes, _comparable(between[unit], together)),
                Matrix(unit, "ranks", ranks, single, shared),
                Matrix(unit, "inside", ranks, seen["inside"], nodes=nodes),
            ]
        judged = {(m.unit, m.where): (m, m.judge(effect)) for m in matrices if m.passes}
        return Measurement(nodes, between, judged)

    def inside(self, unit: Unit) -> Passes:
        """Returns the figures between ranks of the same node, for all nodes."""
        found = self.judged.get((unit, "inside"))
        return found[0].passes if found else {}


def _measured(run: RunState, stage: str, unit: Unit) -> dict[Where, dict[Cell, list[list[float]]]]:
    """Returns the figures that single ranks measured in a stage, by kind of game."""
    found: dict[Where, dict[Cell, list[list[float]]]] = {"nodes": {}, "ranks": {}, "inside": {}}
    for rank, games in run.of(stage).items():
        for where, met in games.items():
            for peer, received, latency in met:
                if unit == "GB/s":
                    found[where].setdefault((peer, rank), []).append(received)
                elif latency:
                    found[where].setdefault((rank, peer), []).append(latency)
    return found


def _combine(ranks: Sequence[Sequence[Sequence[float]]], unit: Unit) -> list[Sequence[float]]:
    """Returns the sum of ranks' rates between two nodes, pass by pass; of latencies the median.
    If ranks cut a pass into different numbers of parts, adds their means over the whole pass."""
    if len(ranks) == 1:
        return list(ranks[0])
    passes = list(zip(*ranks, strict=True))
    if unit == "us":
        return [[statistics.median(map(statistics.median, one_pass))] for one_pass in passes]
    return [
        [sum(rates) for rates in zip(*one_pass, strict=True)]
        if len({len(rates) for rates in one_pass}) == 1
        else [sum(map(statistics.fmean, one_pass))]
        for one_pass in passes
    ]


def _whole(passes: Iterable[Sequence[float]], unit: Unit) -> list[list[float]]:
    """Returns a rank's rate in each whole pass: in parts of it, other ranks may have moved more."""
    if unit == "us":
        return [list(repeats) for repeats in passes]
    return [[statistics.fmean(rates)] for rates in passes]


def _comparable(passes: Passes, ranks: Mapping[Cell, Sequence[object]]) -> Passes:
    """Leaves out pairs of nodes with an unusual number of ranks: their rates can't be compared."""
    sizes = Counter(map(len, ranks.values()))
    usual = max(sizes, key=lambda size: sizes[size], default=0)
    return {cell: seen for cell, seen in passes.items() if len(ranks[cell]) == usual}


_WELL = 0.5  # a rank whose difference is below this share of the floor counts as healthy


def are_all_slow(nodes: Teams, alone: Matrix, suspect: Suspect, floor: float) -> bool:
    """Returns whether all ranks of the suspect's node are slow: then the rank is not the cause.

    A rank of a slow node does not cross the line each time: it counts unless it is clearly healthy.
    """
    at = place_of(nodes)
    ways = {(at[a][0], at[b][0]) for a, b in suspect.part.cells}
    own: dict[int, list[float]] = {}
    others: list[float] = []
    for (sender, receiver), value in log_rates(alone.rates).items():
        node, local = at[sender]
        ours = (node, at[receiver][0]) in ways
        (own.setdefault(local, []) if ours else others).append(value)
    if len(own) < 2 or not others:
        return False
    median = statistics.median(others)
    return all(median - statistics.median(values) > _WELL * floor for values in own.values())


def slower_places(nodes: Teams, shared: Passes, effect: float) -> list[int]:
    """Returns the local ranks that move less data than the best one, on all nodes alike.
    On one node the order on its network card may be the reason; on all nodes it is no chance."""
    at = place_of(nodes)
    sent = grouped((at[sender], value) for (sender, _), value in log_rates(shared).items())
    by_place: dict[int, dict[int, float]] = {}
    for (node, local), values in sent.items():
        by_place.setdefault(local, {})[node] = statistics.median(values)
    best = max(by_place, key=lambda local: statistics.median(by_place[local].values()), default=0)
    floor, comparisons = LINE * matrix.log_effect(effect), len(by_place) ** 2
    found = []
    for local, own in sorted(by_place.items()):
        less = [by_place[best][node] - v for node, v in own.items() if node in by_place[best]]
        if len(less) > 1:  # more than the noise between nodes explains
            noise = matrix.Noise(statistics.stdev(less) / math.sqrt(len(less)), len(less) - 1)
            if statistics.fmean(less) > max(floor, noise.line(comparisons)):
                found.append(local)
    return found


PAIRS, RECHECK = "pairs", "pairs_recheck"


@dataclass(frozen=True)
class _Named:
    figures: Matrix
    judgement: Judgement
    suspect: Suspect

    @property
    def ends(self) -> set[int]:
        return self.suspect.part.touched()


class Judge:
    """Judges each stage's measurement once. effect: the smallest looked for, as a share.

    first, again: names of the stages of the measurement and of its recheck.
    """

    def __init__(self, effect: float, first: str = PAIRS, again: str = RECHECK) -> None:
        self.effect, self.first, self.again = effect, first, again
        self._measurements: dict[str, Measurement] = {}

    def measurement(self, run: RunState, stage: str = "") -> Measurement:
        """Returns the judged measurement of a completed stage; by default, of the first one."""
        stage = stage or self.first
        if stage not in self._measurements:
            enabled = gc.isenabled()
            gc.disable()  # nothing here makes cycles, and looking for them would double the time
            try:
                self._measurements[stage] = Measurement.at(run, stage, self.effect)
            finally:
                if enabled:  # a judge's process has switched it off for good
                    gc.enable()
        return self._measurements[stage]

    def suspects(self, run: RunState) -> list[Finding]:
        """Returns the suspects; a rank is named only after the recheck."""
        return [
            findings.not_confirmed(run, suspect, figures.unit, findings.NO_TIME)
            for figures, judgement in self.measurement(run).judged.values()
            for suspect in judgement.suspects
        ]

    def doubted(self, run: RunState, where: Where) -> list[int]:
        """Returns the ranks that suspects of the first measurement touch, the worst first."""
        return [
            rank
            for figures, judgement in self.measurement(run).judged.values()
            for suspect in judgement.suspects
            if figures.where == where
            for rank in sorted(suspect.part.touched())
        ]

    def confirmed(self, run: RunState) -> list[Finding]:
        again = self.measurement(run, self.again)
        named: list[_Named] = []
        lost: list[Finding] = []
        for key, (figures, judgement) in self.measurement(run).judged.items():
            anew, second = again.judged.get(key, (None, Judgement()))
            for suspect in judgement.suspects:
                same = next((s for s in second.suspects if s.part.names_as(suspect.part)), None)
                if (anew and same) and not (
                    key[1] == "ranks" and are_all_slow(again.nodes, anew, same, second.floor)
                ):
                    named.append(_Named(figures, second, same))
                    continue
                left = matrix.below(anew.rates, suspect.part) if anew else None
                why = findings.NO_TIME
                if left is not None:
                    why = findings.PASSED if left < judgement.floor else findings.NOT_SURE
                lost.append(findings.not_confirmed(run, suspect, figures.unit, why))
        return [
            findings.slow_part(run, one.suspect, one.figures.unit, one.figures.where, one.judgement)
            for one in _once(named)
        ] or lost

    def unresolved(self, run: RunState) -> list[Finding]:
        """Returns findings about undecided matrices, if nothing is named."""
        found = []
        measured = self.measurement(run)
        for figures, judgement in measured.judged.values():
            if figures.shared:  # the matrix of nodes is judged instead; the summary says so
                if figures.unit == "GB/s" and (
                    slower := slower_places(measured.nodes, figures.rates, self.effect)
                ):
                    found.append(findings.uneven_places(slower))
            elif judgement.uneven:
                found.append(findings.uneven_links(figures.unit, figures.where, judgement))
            elif figures.unit == "GB/s" and judgement.smallest() > self.effect:
                found.append(findings.too_noisy(judgement, figures.where, self.effect))
        return found

    def all_well(self, run: RunState, passed: str) -> str:
        """Returns the summary if nothing is named, with what passed; "" if nothing was measured."""
        measured = self.measurement(run)
        clear, unclear = [], False
        between = judged[0].passes if (judged := measured.judged.get(("GB/s", "nodes"))) else ()
        for (unit, where), (figures, judgement) in measured.judged.items():
            # Single ranks that share a card may not show a slowdown of the size looked for.
            missed = unit == "GB/s" and judgement.smallest() > self.effect
            if figures.shared and (judgement.uneven or missed):
                unclear = True
            else:
                clear.append((unit, where, judgement))
        return findings.nobody_is_slow(
            f"all {len(measured.nodes)} nodes" if unclear else f"all {run.world} ranks",
            clear,
            all_met=len(measured.nodes) <= MOST_FOR_ALL,
            all_judged={*measured.between["GB/s"]} == {*between},
            passed=passed,
        )


def settle(found: list[Finding]) -> tuple[list[Finding], str]:
    """Returns the findings except slowdowns that passed, and a sentence about the passed ones."""
    passed = [one for one in found if one.cause == findings.PASSED.cause]
    return [one for one in found if one not in passed], "; ".join(one.what for one in passed)


def _once(named: list[_Named]) -> list[_Named]:
    """Keeps the best explanation: one fault shows in several matrices.

    A slow rank explains a slow node, unless most ranks of the node are slow, and it explains a slow
    link to another rank of its node. A delayed part also moves less data: the delay is kept.
    """
    alone = [one for one in named if one.figures.where == "ranks"]
    kept = alone + [one for one in named if one not in alone and not _is_explained(one, alone)]
    delayed = [one.suspect.part for one in kept if one.figures.unit == "us"]
    return [
        one
        for one in kept
        if one.figures.unit == "us" or not any(one.suspect.part.names_as(part) for part in delayed)
    ]


def _is_explained(one: _Named, alone: list[_Named]) -> bool:
    """Returns whether single slow ranks explain it. They never explain a node slow inside."""
    if one.suspect.part.kind == "among":
        return False
    ends = [single.ends for single in alone if single.ends <= one.ends]
    if one.figures.where != "nodes" or one.ends in ends:
        return bool(ends)
    return 0 < 2 * len(set().union(*ends)) <= len(one.ends)

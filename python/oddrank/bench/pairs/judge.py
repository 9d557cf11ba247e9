"""Judges the links that the ranks measured: names only what is slow in both measurements."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from oddrank.bench.pairs import findings
from oddrank.bench.pairs.matrix import Judgement, Suspect
from oddrank.bench.pairs.measurement import Matrix, Measurement, Unit, are_all_slow, slower_places
from oddrank.bench.pairs.schedule import MOST_FOR_ALL, Where
from oddrank.control.stages import RunState
from oddrank.finding import Finding

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
            with _no_search_for_cycles():
                self._measurements[stage] = Measurement.at(run, stage, self.effect)
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
                left = anew.below(suspect.part) if anew else None
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
        for (unit, where), (figures, judgement) in measured.judged.items():
            if figures.shared and self._tells_nothing(unit, judgement):
                unclear = True
            else:
                clear.append((unit, where, judgement))
        return findings.nobody_is_slow(
            f"all {len(measured.nodes)} nodes" if unclear else f"all {run.world} ranks",
            clear,
            all_met=len(measured.nodes) <= MOST_FOR_ALL,
            all_judged=measured.has_judged_all(),
            passed=passed,
        )

    def _tells_nothing(self, unit: Unit, shared: Judgement) -> bool:
        """Returns whether single ranks can't show a slowdown of the size looked for."""
        return shared.uneven or (unit == "GB/s" and shared.smallest() > self.effect)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Pauses the garbage collector: nothing here makes cycles, and it would double the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


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

"""From what the ranks measured of their links to who is named: only who is slow both times."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from oddrank.bench.pairs import findings
from oddrank.bench.pairs.games import Where
from oddrank.bench.pairs.looks import Look, Matrix, Unit
from oddrank.bench.pairs.mates import are_all_slow, slower_places
from oddrank.bench.pairs.matrix import Judgement, Suspect
from oddrank.bench.pairs.tournament import MOST_FOR_ALL
from oddrank.control.stages import Rounds
from oddrank.finding import Finding

PAIRS, CONFIRM = "pairs", "confirm"


@dataclass(frozen=True)
class _Named:
    figures: Matrix
    judgement: Judgement
    suspect: Suspect

    @property
    def ends(self) -> set[int]:
        return self.suspect.part.touched()


class Judge:
    """effect: the smallest looked for, as a share. What a stage has measured is judged once.

    first, again: the names of the stages of both looks.
    """

    def __init__(self, effect: float, first: str = PAIRS, again: str = CONFIRM) -> None:
        self.effect, self.first, self.again = effect, first, again
        self._looks: dict[str, Look] = {}

    def look(self, rounds: Rounds, stage: str = "") -> Look:
        """At a stage that all ranks are through, the first one."""
        stage = stage or self.first
        if stage not in self._looks:
            with _no_search_for_cycles():
                self._looks[stage] = Look.at(rounds, stage, self.effect)
        return self._looks[stage]

    def suspects(self, rounds: Rounds) -> list[Finding]:
        """Suspects: nobody is named before stage confirm has measured them again."""
        return [
            findings.not_measured_again(rounds, suspect, figures.unit)
            for figures, judgement in self.look(rounds).judged.values()
            for suspect in judgement.suspects
        ]

    def doubted(self, rounds: Rounds, where: Where) -> list[int]:
        """The ranks that a suspect of the first look touches, the worst first."""
        return [
            rank
            for figures, judgement in self.look(rounds).judged.values()
            for suspect in judgement.suspects
            if figures.where == where
            for rank in sorted(suspect.part.touched())
        ]

    def confirmed(self, rounds: Rounds) -> list[Finding]:
        """Only who is slow both times is named."""
        again = self.look(rounds, self.again)
        named: list[_Named] = []
        lost: list[Finding] = []
        for key, (figures, judgement) in self.look(rounds).judged.items():
            anew, second = again.judged.get(key, (None, Judgement()))
            for suspect in judgement.suspects:
                same = next((s for s in second.suspects if s.part.names_as(suspect.part)), None)
                if (anew and same) and not (
                    key[1] == "ranks" and are_all_slow(again.nodes, anew, same, second.floor)
                ):
                    named.append(_Named(figures, second, same))
                    continue
                left = anew.below(suspect.part) if anew else None
                doubt = findings.not_measured_again
                if left is not None:
                    doubt = findings.slow_once if left < judgement.floor else findings.not_sure
                lost.append(doubt(rounds, suspect, figures.unit))
        return [
            findings.slow_part(
                rounds, one.suspect, one.figures.unit, one.figures.where, one.judgement
            )
            for one in _once(named)
        ] or lost

    def unresolved(self, rounds: Rounds) -> list[Finding]:
        """Where nobody is named: what could not be told."""
        found = []
        look = self.look(rounds)
        for figures, judgement in look.judged.values():
            if figures.shared:  # what their node moved counts; the summary tells the rest
                found += self._uneven_places(look, figures)
            elif judgement.uneven:
                found.append(findings.uneven_links(figures.unit, figures.where, judgement))
            elif figures.unit == "GB/s" and judgement.smallest() > self.effect:
                found.append(findings.too_noisy(judgement, figures.where, self.effect))
        return found

    def _uneven_places(self, look: Look, figures: Matrix) -> list[Finding]:
        if figures.unit != "GB/s":
            return []
        slower = slower_places(look.nodes, figures.rates, self.effect)
        return [findings.uneven_places(slower)] if slower else []

    def all_well(self, rounds: Rounds, passed: str) -> str:
        """The summary where nobody is named, and what passed by; "" where nothing was measured."""
        look = self.look(rounds)
        clear, unclear = [], False
        for (unit, where), (figures, judgement) in look.judged.items():
            if figures.shared and self._tells_nothing(unit, judgement):
                unclear = True
            else:
                clear.append((unit, where, judgement))
        return findings.nobody_is_slow(
            f"all {len(look.nodes)} nodes" if unclear else f"all {rounds.world} ranks",
            clear,
            all_met=len(look.nodes) <= MOST_FOR_ALL,
            all_judged=look.has_judged_all(),
            passed=passed,
        )

    def _tells_nothing(self, unit: Unit, shared: Judgement) -> bool:
        """Of single ranks, that one is slow by the effect looked for."""
        return shared.uneven or (unit == "GB/s" and shared.smallest() > self.effect)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """None are made: to look for them among millions of figures takes as long as all the rest."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def settle(found: list[Finding]) -> tuple[list[Finding], str]:
    """What is left of the findings without those that passed by, and a sentence on these."""
    passed = [one for one in found if one.cause == findings.SLOW_ONCE]
    return [one for one in found if one not in passed], "; ".join(one.what for one in passed)


def _once(named: list[_Named]) -> list[_Named]:
    """One thing that is wrong shows in several matrices: what explains it best is named.

    A rank that is slow alone explains a slow node, unless most of the node's are, and a slow link
    to another of its node. Who waits longer for an answer also moves less.
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
    """By ranks that are slow alone; of a node's inside all is slow, which none of them makes so."""
    if one.suspect.part.kind == "among":
        return False
    ends = [single.ends for single in alone if single.ends <= one.ends]
    if one.figures.where != "nodes" or one.ends in ends:
        return bool(ends)
    return 0 < 2 * len(set().union(*ends)) <= len(one.ends)

"""From what the ranks measured of their links to who is named: only who is slow both times."""

from dataclasses import dataclass

from oddrank.bench.pairs import findings, matrix, parts
from oddrank.bench.pairs.matrix import Judgement, Suspect, Visits
from oddrank.bench.pairs.parts import Cell, Nodes, Part
from oddrank.bench.pairs.tournament import MOST_FOR_ALL
from oddrank.control.stages import Rounds
from oddrank.finding import Finding

PAIRS, CONFIRM = "pairs", "confirm"
# Looked for in latencies: twice as long.
LATENCY_EFFECT = 0.5


@dataclass(frozen=True)
class Matrix:
    """One kind of figure over one kind of links, by (from rank, to rank)."""

    unit: str  # "GB/s", or "us": one way, known for the lower rank first
    inside: bool  # nodes
    visits: Visits

    def judge(self, nodes: Nodes, effect: float) -> Judgement:
        directed = self.unit == "GB/s"
        if self.inside:
            found = parts.inside(self.visits, directed=directed)
            members = sum(len(node) for node in nodes)
        else:
            found = parts.across(nodes, self.visits, directed=directed)
            members = len(nodes)
        least = effect if directed else LATENCY_EFFECT
        return matrix.judge(self._rates(), found, least, members)

    def below(self, part: Part) -> float | None:
        """See matrix.below."""
        return matrix.below(self._rates(), part)

    def _rates(self) -> Visits:
        """Larger is better."""
        if self.unit == "GB/s":
            return self.visits
        return {
            cell: [[1 / value for value in repeats] for repeats in seen]
            for cell, seen in self.visits.items()
        }


def nodes_of(rounds: Rounds) -> list[tuple[int, ...]]:
    """The ranks of each node, in the order of their local ranks."""
    nodes: dict[tuple[int, str], list[int]] = {}
    for rank, state in sorted(rounds.states.items()):
        nodes.setdefault((state.node, state.host), []).append(rank)
    return sorted(tuple(ranks) for ranks in nodes.values())


def matrices(rounds: Rounds, stage: str) -> list[Matrix]:
    """The figures of a stage: bandwidths and latencies, between nodes and inside them."""
    node_of = {rank: number for number, node in enumerate(nodes_of(rounds)) for rank in node}
    found = []
    for inside in (False, True):
        rates: dict[Cell, list[list[float]]] = {}
        latencies: dict[Cell, list[list[float]]] = {}
        for rank, met in rounds.of(stage).items():
            for peer, received, latency in met:
                if (node_of[rank] == node_of[peer]) == inside:
                    rates.setdefault((peer, rank), []).append(received)
                    if latency:
                        latencies.setdefault((rank, peer), []).append(latency)
        found += [Matrix("GB/s", inside, rates), Matrix("us", inside, latencies)]
    return found


def judgements(rounds: Rounds, effect: float, stage: str) -> list[tuple[Matrix, Judgement]]:
    """Every matrix of a stage with what it shows."""
    nodes = nodes_of(rounds)
    return [(m, m.judge(nodes, effect)) for m in matrices(rounds, stage) if m.visits]


def suspects(rounds: Rounds, effect: float) -> list[Finding]:
    """Suspects: nobody is named before stage confirm has measured them again."""
    return [
        findings.not_measured_again(rounds, suspect, figures.unit)
        for figures, judgement in judgements(rounds, effect, PAIRS)
        for suspect in judgement.suspects
    ]


def doubted(rounds: Rounds, effect: float, *, inside: bool) -> list[int]:
    """The ranks that a suspect of the first stage touches, the worst first."""
    return [
        rank
        for figures, judgement in judgements(rounds, effect, PAIRS)
        for suspect in judgement.suspects
        if figures.inside == inside
        for rank in sorted(suspect.part.touched())
    ]


def confirmed(rounds: Rounds, effect: float) -> list[Finding]:
    """Only who is slow both times is named."""
    again = {(m.unit, m.inside): (m, j) for m, j in judgements(rounds, effect, CONFIRM)}
    named: list[tuple[Matrix, Judgement, Suspect]] = []
    lost = []
    for figures, judgement in judgements(rounds, effect, PAIRS):
        if (figures.unit, figures.inside) not in again:
            continue
        anew, second = again[figures.unit, figures.inside]
        for suspect in judgement.suspects:
            same = [s for s in second.suspects if s.part.names_as(suspect.part)]
            if same:
                named.append((figures, second, same[0]))
                continue
            left = anew.below(suspect.part)
            gone = left is not None and left < judgement.floor
            doubt = findings.slow_once if gone else findings.not_sure
            lost.append(doubt(rounds, suspect, figures.unit))
    delayed = [s.part for figures, _, s in named if figures.unit == "us"]
    return [
        findings.slow_part(rounds, suspect, figures.unit, judgement)
        for figures, judgement, suspect in named
        # Who waits longer for an answer also moves less: one thing is wrong with it, not two.
        if figures.unit == "us" or not any(suspect.part.names_as(part) for part in delayed)
    ] or lost


def settle(found: list[Finding]) -> tuple[list[Finding], str]:
    """What is left of the findings without those that passed by, and a sentence on these."""
    passed = [one for one in found if one.cause == findings.SLOW_ONCE]
    return [one for one in found if one not in passed], "; ".join(one.what for one in passed)


def unresolved(rounds: Rounds, effect: float) -> list[Finding]:
    """Where nobody is named: what could not be told."""
    found = []
    for figures, judgement in judgements(rounds, effect, PAIRS):
        if judgement.uneven:
            found.append(findings.uneven_links(figures.unit, judgement))
        elif figures.unit == "GB/s" and judgement.smallest() > effect:
            found.append(findings.too_noisy(judgement, effect))
    return found


def all_well(rounds: Rounds, effect: float, passed: str) -> str:
    """The summary where nobody is named, and what passed by; "" where nothing was measured."""
    seen = judgements(rounds, effect, PAIRS)
    return findings.nobody_is_slow(
        rounds.world,
        [(figures.unit, figures.inside, judgement) for figures, judgement in seen],
        all_met=len(nodes_of(rounds)) <= MOST_FOR_ALL,
        passed=passed,
    )

"""Who meets again: suspects of the first look, and partners that are known to be good."""

from oddrank.bench.pairs.games import Game
from oddrank.bench.pairs.judge import Judge
from oddrank.bench.pairs.tournament import panel
from oddrank.control.stages import Rounds

# Local ranks whose ranks meet while all others rest: as many as GPUs are in most nodes.
_MOST_ALONE = 8


def games_again(judge: Judge, rounds: Rounds) -> list[Game]:
    """Small tournaments: of nodes, of single ranks, and inside nodes, where somebody is doubted."""
    nodes = judge.look(rounds).nodes
    node_of = {rank: number for number, node in enumerate(nodes) for rank in node}
    between = [node_of[rank] for rank in judge.doubted(rounds, "nodes")]
    alone = [node_of[rank] for rank in judge.doubted(rounds, "ranks")]
    within = set(judge.doubted(rounds, "inside"))
    games = []
    if between:
        games.append(Game("nodes", [nodes[number] for number in panel(len(nodes), between)]))
    if alone:
        # All local ranks: where all of a node are slow alone, it is the node.
        numbers = panel(len(nodes), alone)
        for local in range(min(_MOST_ALONE, max(len(nodes[number]) for number in alone))):
            teams = [(nodes[n][local],) for n in numbers if local < len(nodes[n])]
            games.append(Game("ranks", teams))
    if within:
        games.append(Game("inside", [_panel_of(node, within) for node in nodes]))
    return games


def _panel_of(node: tuple[int, ...], doubted: set[int]) -> tuple[int, ...]:
    suspects = [local for local, rank in enumerate(node) if rank in doubted]
    return tuple(node[local] for local in panel(len(node), suspects))

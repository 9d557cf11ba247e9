"""Who meets: everybody, and again suspects and partners that are known to be good."""

from collections.abc import Sequence

from oddrank.bench.pairs.games import Game, Teams
from oddrank.bench.pairs.judge import Judge
from oddrank.bench.pairs.tournament import panel
from oddrank.control.stages import Rounds

# Local ranks whose ranks meet while all others rest: as many as GPUs are in most nodes. With more
# rounds of that for everybody they do so only if they looked slow beside others of their node.
_MOST_ALONE = 8
_MOST_TURNS_ALONE = 24


def games_of_all(nodes: Teams) -> list[Game]:
    """Nodes, their single ranks, and the ranks inside each."""
    between = [Game("nodes", nodes)] if len(nodes) > 1 else []
    if max(map(len, nodes)) == 1:
        return between
    alone = _alone(nodes, range(len(nodes))) if between else []
    if sum(game.turns() for game in alone) > _MOST_TURNS_ALONE:
        alone = []
    return [*between, *alone, Game("inside", nodes)]


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
        games += _alone(nodes, panel(len(nodes), alone))
    if within:
        games.append(Game("inside", [_panel_of(node, within) for node in nodes]))
    return games


def _alone(nodes: Teams, numbers: Sequence[int]) -> list[Game]:
    """Of these nodes one local rank after the other."""
    most = min(_MOST_ALONE, max(len(nodes[number]) for number in numbers))
    return [
        Game("ranks", [(nodes[n][local],) for n in numbers if local < len(nodes[n])])
        for local in range(most)
    ]


def _panel_of(node: tuple[int, ...], doubted: set[int]) -> tuple[int, ...]:
    suspects = [local for local, rank in enumerate(node) if rank in doubted]
    return tuple(node[local] for local in panel(len(node), suspects))

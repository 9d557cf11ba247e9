"""Who meets: everybody, and again suspects and partners that are known to be good."""

from collections.abc import Sequence

from oddrank.bench.pairs.games import Game, Teams
from oddrank.bench.pairs.judge import Judge
from oddrank.bench.pairs.tournament import panel
from oddrank.control.stages import Rounds

# Rounds in which one rank of each node meets others while the rest of its node do nothing. With
# more of them for everybody ranks do so only if they looked slow beside others of their node, the
# worst first.
_MOST_TURNS_ALONE = 24
# Of the node of a doubted rank, measured alone as well: where they are as slow, it is the node.
_MATES = 1


def games_of_all(nodes: Teams, *, inside: bool = True) -> list[Game]:
    """Nodes, their single ranks, and the ranks inside each, if that is wanted."""
    between = [Game("nodes", nodes)] if len(nodes) > 1 else []
    if max(map(len, nodes)) == 1:
        return between
    places = range(max(map(len, nodes)))
    alone = _alone(nodes, range(len(nodes)), places) if between else []
    if _turns(alone) > _MOST_TURNS_ALONE:
        alone = []
    return [*between, *alone, *([Game("inside", nodes)] if inside else [])]


def games_again(judge: Judge, rounds: Rounds) -> list[Game]:
    """Small tournaments: of nodes, of single ranks, and inside nodes, where somebody is doubted."""
    nodes = judge.look(rounds).nodes
    node_of = {rank: number for number, node in enumerate(nodes) for rank in node}
    between = [node_of[rank] for rank in judge.doubted(rounds, "nodes")]
    alone = judge.doubted(rounds, "ranks")
    within = set(judge.doubted(rounds, "inside"))
    games = []
    if between:
        games.append(Game("nodes", [nodes[number] for number in panel(len(nodes), between)]))
    if alone:
        games += _alone_again(nodes, list(dict.fromkeys(alone)))
    if within:
        games.append(Game("inside", [_panel_of(node, within) for node in nodes]))
    return games


def _alone_again(nodes: Teams, doubted: Sequence[int]) -> list[Game]:
    """As many of the doubted as there are rounds for, the worst first, and mates of them."""
    at = {rank: (n, local) for n, node in enumerate(nodes) for local, rank in enumerate(node)}
    games: list[Game] = []
    for most in range(1, len(doubted) + 1):
        ends = [at[rank] for rank in doubted[:most]]
        places = list(dict.fromkeys(local for _, local in ends))
        size = min(len(nodes[number]) for number, _ in ends)
        places += [local for local in range(size) if local not in places][:_MATES]
        more = _alone(nodes, panel(len(nodes), [number for number, _ in ends]), sorted(places))
        if games and _turns(more) > _MOST_TURNS_ALONE:
            break
        games = more
    return games


def _alone(nodes: Teams, numbers: Sequence[int], places: Sequence[int]) -> list[Game]:
    """Of these nodes one of these local ranks after the other."""
    return [
        Game("ranks", [(nodes[n][local],) for n in numbers if local < len(nodes[n])])
        for local in places
    ]


def _turns(games: Sequence[Game]) -> int:
    return sum(game.turns() for game in games)


def _panel_of(node: tuple[int, ...], doubted: set[int]) -> tuple[int, ...]:
    suspects = [local for local, rank in enumerate(node) if rank in doubted]
    return tuple(node[local] for local in panel(len(node), suspects))

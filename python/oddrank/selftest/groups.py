"""Which ranks work together in a test: all of them, those of a node, and one of each node."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oddrank.bench.group import connect

if TYPE_CHECKING:
    from oddrank.control.stages import Context

WORLD, NODE, ACROSS = "world", "node", "across"
Teams = Sequence[tuple[int, ...]]
_KEPT = "groups"


def teams_of(nodes: Teams) -> dict[str, Teams]:
    """By name the groups of ranks; across: the first of each node, the second of each, and so on.

    Of every name each rank is in one group, alone if need be: all make the same steps, and who is
    stuck is told by having made fewer. No name has the same groups as another, or only lone ranks.
    """
    world = tuple(sorted(rank for node in nodes for rank in node))
    most = max(map(len, nodes))
    across = [tuple(sorted(n[k] for n in nodes if k < len(n))) for k in range(most)]
    named = {WORLD: [world], NODE: list(nodes), ACROSS: across}
    return {
        name: teams
        for name, teams in named.items()
        if name == WORLD or any(1 < len(team) < len(world) for team in teams)
    }


class Groups:
    """Those of one rank, by name. Each makes the three that it is in, however many nodes there are.

    largest: by name, how many ranks the largest group has.
    """

    def __init__(self, context: "Context", backend: str, nodes: Teams) -> None:
        world = connect(context, backend)
        world.barrier()  # all of them are there, and nccl has its communicator
        self.world, self.of, self.largest = world, {WORLD: world}, {WORLD: world.world}
        for number, (name, teams) in enumerate(teams_of(nodes).items()):
            if name == WORLD:
                continue
            (own,) = (team for team in teams if world.rank in team)
            self.largest[name] = max(map(len, teams))
            self.of[name] = world.part(name, number, own)
            self.of[name].barrier()
        context.kept[_KEPT] = self


def made_by(context: "Context") -> Groups:
    """What stage connect has made."""
    made: Groups = context.kept[_KEPT]
    return made

"""What `bench pairs` does on the ranks: everybody meets everybody, then suspects meet good ones.

Between nodes, local rank k of one meets local rank k of the other, all at once; then the ranks
inside each node meet, all nodes at once. Each pair moves data one way, then the other.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

from oddrank.bench import place
from oddrank.bench.group import Group, connect
from oddrank.bench.memory import free_host_memory
from oddrank.bench.pairs import judge, matrix
from oddrank.bench.pairs.exchange import Effort, Exchange
from oddrank.bench.pairs.judge import CONFIRM, PAIRS, nodes_of
from oddrank.bench.pairs.parts import Nodes
from oddrank.bench.pairs.tournament import Tournament, panel
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Finding, fold

# Of the command's time, for repeats beyond the fewest.
_SHARE_FOR_REPEATS = 0.4
# How often everybody meets everybody, the more often the fewer rounds that takes: who is slow
# because of something that passes is not slow every time.
_VISITS = ((1, 5), (7, 3), (23, 2))
# Repeats of a visit.
_FEWEST, _FEWEST_AGAIN = 4, 6
# Messages under way to a rank that has not taken them yet, and torch's own.
_BUFFERS = 4


@dataclass(frozen=True)
class Options:
    """size: bytes of a message; effect: the smallest looked for, as a share; seconds: for all."""

    size: int
    effect: float
    seconds: float


def stages(options: Options) -> list[Stage]:
    """The table of the command."""

    def plan(rounds: Rounds) -> dict[str, Any]:
        nodes = nodes_of(rounds)
        return _plan(rounds, options, nodes, nodes, _FEWEST)

    def judge_pairs(rounds: Rounds) -> list[Finding]:
        return judge.suspects(rounds, options.effect)

    def plan_again(rounds: Rounds) -> dict[str, Any]:
        return _plan_again(rounds, options)

    def judge_again(rounds: Rounds) -> list[Finding]:
        return judge.confirmed(rounds, options.effect)

    return [
        Stage("devices", options.seconds, measure=_see_devices),
        Stage("connect", options.seconds, measure=_connect, plan=_plan_backend),
        Stage(PAIRS, options.seconds, _measure, judge_pairs, plan),
        Stage(CONFIRM, options.seconds, _measure, judge_again, plan_again, confirms=PAIRS),
    ]


def _see_devices(context: Context) -> dict[str, Any]:
    context.step("import torch")
    return place.facts(context.launch)


def _plan_backend(rounds: Rounds) -> str:
    return place.BACKENDS[place.choose(rounds.of("devices").values())]


def _connect(context: Context) -> dict[str, Any]:
    group = connect(context, context.parameters)
    group.barrier()  # all of them are there, and nccl has its communicator
    return {"backend": group.backend, "free": _free_bytes(group, context)}


def _free_bytes(group: Group, context: Context) -> float:
    if group.backend == "nccl":
        import torch

        return float(torch.cuda.mem_get_info(group.device)[0]) * 0.8
    return free_host_memory() * 0.5 / context.launch.local_world


def _plan(
    rounds: Rounds, options: Options, across: Nodes, inside: Nodes, fewest: int
) -> dict[str, Any]:
    """Who meets whom: tournaments that each rank works out by itself. OddrankError: no memory."""
    connected = rounds.of("connect")
    rank, free = min(((r, c["free"]) for r, c in connected.items()), key=lambda pair: pair[1])
    if options.size * _BUFFERS > free:
        fits = max(1, int(free / _BUFFERS) >> 20)
        raise OddrankError(f"rank {rank} has no memory for messages this large: try --size {fits}M")
    turns = len(Tournament.of(len(across)).turns)
    turns += max((len(Tournament.of(len(node)).turns) for node in inside), default=0)
    visits = next((times for most, times in _VISITS if turns <= most), 1)
    comparisons = sum(2 * len(group) ** 2 for group in (across, *inside))
    effort = Effort(
        options.size,
        matrix.error_wanted(options.effect, comparisons) * math.sqrt(visits),
        _SHARE_FOR_REPEATS * options.seconds / max(1, 2 * turns * visits),
        fewest,
    )
    return {
        "backend": connected[0]["backend"],
        "effort": asdict(effort),
        "visits": visits,
        # As text it is short enough for one message, however many ranks there are.
        "across": [fold(node) for node in across],
        "inside": [fold(node) for node in inside],
    }


def _measure(context: Context) -> list[tuple[int, list[float], list[float]]]:
    """(peer, GB/s from it, us one way) of every meeting of this rank, in turn."""
    told = context.parameters
    group = connect(context, told["backend"])
    exchange = Exchange(context, group, Effort(**told["effort"]))
    rank = context.launch.rank
    across = [_unfold(text) for text in told["across"]]
    inside = [_unfold(text) for text in told["inside"]]
    met = []
    for visit in range(told["visits"]):
        met += [(peer, *exchange.meet(peer)) for peer in _across(rank, across, visit)]
        group.barrier()  # what is measured inside a node has no traffic of others beside it
        for node in inside:
            met += [(peer, *exchange.meet(peer)) for peer in _inside(rank, node, visit)]
        group.barrier()
    return met


def _across(rank: int, nodes: Nodes, visit: int) -> list[int]:
    """This rank's partners on other nodes: those in the same place there."""
    mine = next((number for number, node in enumerate(nodes) if rank in node), None)
    if mine is None:
        return []
    local = nodes[mine].index(rank)
    others = Tournament.of(len(nodes), visit).partners(mine)
    return [nodes[o][local] for o in others if o is not None and local < len(nodes[o])]


def _inside(rank: int, node: Sequence[int], visit: int) -> list[int]:
    if rank not in node:
        return []
    others = Tournament.of(len(node), visit).partners(node.index(rank))
    return [node[other] for other in others if other is not None]


def _unfold(text: str) -> tuple[int, ...]:
    """The ranks of `fold`'s text."""
    ranks: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        ranks += range(int(low), int(high or low) + 1)
    return tuple(ranks)


def _plan_again(rounds: Rounds, options: Options) -> dict[str, Any]:
    """A small tournament of the suspects and of others that are known to be good."""
    nodes = nodes_of(rounds)
    between = [
        number
        for rank in judge.doubted(rounds, options.effect, inside=False)
        for number, node in enumerate(nodes)
        if rank in node
    ]
    within = set(judge.doubted(rounds, options.effect, inside=True))
    across = [nodes[number] for number in panel(len(nodes), between)] if between else []
    inside = [_panel_of(node, within) for node in nodes] if within else []
    return _plan(rounds, options, across, inside, _FEWEST_AGAIN)


def _panel_of(node: tuple[int, ...], doubted: Set[int]) -> tuple[int, ...]:
    suspects = [local for local, rank in enumerate(node) if rank in doubted]
    return tuple(node[local] for local in panel(len(node), suspects))

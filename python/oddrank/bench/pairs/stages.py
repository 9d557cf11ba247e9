"""What `bench pairs` does on the ranks: everybody meets everybody, then suspects meet good ones.

Between nodes, local rank k of one meets local rank k of the other, all at once; then, where these
are few or looked slow, one local rank after the other while the others rest; then the ranks inside
each node, all nodes at once. Each pair moves data one way, then the other.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oddrank.bench import place
from oddrank.bench.group import Group, connect
from oddrank.bench.memory import free_host_memory
from oddrank.bench.pairs.exchange import Effort, Exchange
from oddrank.bench.pairs.games import Game, pack, unpack
from oddrank.bench.pairs.judge import CONFIRM, PAIRS, Judge
from oddrank.bench.pairs.noise import error_wanted
from oddrank.bench.pairs.panels import games_again, games_of_all
from oddrank.bench.pairs.tournament import visits_of
from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.errors import OddrankError

# Of the command's time, for repeats beyond the fewest.
_SHARE_FOR_REPEATS = 0.4
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


def stages(options: Options, judge: Judge) -> list[Stage]:
    """The table of the command."""

    def plan(rounds: Rounds) -> dict[str, Any]:
        return plan_of(rounds, options, games_of_all(nodes_of(rounds)))

    def plan_again(rounds: Rounds) -> dict[str, Any]:
        return plan_of(rounds, options, games_again(judge, rounds), again=True)

    return [
        Stage("devices", options.seconds, measure=_see_devices),
        Stage("connect", options.seconds, measure=_connect, plan=_plan_backend),
        Stage(PAIRS, options.seconds, measure, judge.suspects, plan),
        Stage(CONFIRM, options.seconds, measure, judge.confirmed, plan_again, confirms=PAIRS),
    ]


def _see_devices(context: Context) -> dict[str, Any]:
    context.step("import torch")
    return place.facts(context.launch)


def _plan_backend(rounds: Rounds) -> str:
    return place.BACKENDS[place.choose(rounds.of("devices").values())]


def _connect(context: Context) -> dict[str, Any]:
    group = connect(context, context.parameters)
    group.barrier()  # all of them are there, and nccl has its communicator
    return {"backend": group.backend, "free": free_bytes(group, context)}


def free_bytes(group: Group, context: Context) -> float:
    """That this rank may take for its buffers."""
    if group.backend == "nccl":
        import torch

        return float(torch.cuda.mem_get_info(group.device)[0]) * 0.8
    return free_host_memory() * 0.5 / context.launch.local_world


def plan_of(
    rounds: Rounds, options: Options, games: Sequence[Game], *, again: bool = False
) -> dict[str, Any]:
    """Who meets whom: tournaments that each rank works out by itself. OddrankError: no memory.

    From what each rank has said in stage connect: its `backend` and its `free` bytes.
    """
    connected = rounds.of("connect")
    rank, free = min(((r, c["free"]) for r, c in connected.items()), key=lambda pair: pair[1])
    if options.size * _BUFFERS > free:
        fits = max(1, int(free / _BUFFERS) >> 20)
        raise OddrankError(f"rank {rank} has no memory for messages this large: try --size {fits}M")
    turns = sum(game.turns() for game in games)
    visits = visits_of(turns)
    comparisons = sum(game.comparisons() for game in games)
    effort = Effort(
        options.size,
        error_wanted(options.effect, comparisons) * math.sqrt(visits),
        _SHARE_FOR_REPEATS * options.seconds / max(1, 2 * turns * visits),
        _FEWEST_AGAIN if again else _FEWEST,
    )
    return {
        "backend": connected[0]["backend"],
        "effort": asdict(effort),
        "visits": visits,
        "games": pack(games, rounds.world),
    }


def measure(context: Context) -> dict[str, list[tuple[int, list[float], list[float]]]]:
    """By kind of game: (peer, GB/s from it, us one way) of every meeting of this rank, in turn."""
    told = context.parameters
    group = connect(context, told["backend"])
    exchange = Exchange(context, group, Effort(**told["effort"]))
    games = unpack(told["games"])
    met: dict[str, list[tuple[int, list[float], list[float]]]] = {}
    for visit in range(told["visits"]):
        for game in games:
            found = met.setdefault(game.where, [])
            for meeting in game.meetings(context.launch.rank, visit):
                rates, latency = exchange.meet(meeting, game.shared)
                if meeting.peer is not None:
                    found.append((meeting.peer, rates, latency))
            group.barrier()  # what is measured in one game has no traffic of another beside it
    return met

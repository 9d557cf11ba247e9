"""The stages of `bench pairs` on the ranks: all meet, then suspects meet known-good ranks.

First nodes meet: local rank k of one with local rank k of the other, all at once. Then single ranks
meet, one of each node while the others rest, if there are few or some looked slow. Then the ranks
inside each node meet, all nodes at once. Each pair moves data one way, then the other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, TypedDict

from oddrank.bench.pairs.exchange import Effort, Exchange, wire_of
from oddrank.bench.pairs.judge import PAIRS, RECHECK, Judge
from oddrank.bench.pairs.matrix import error_wanted
from oddrank.bench.pairs.schedule import Game, Teams, pack, panel, passes_of, place_of, unpack
from oddrank.control.stages import AnyStage, Context, RunState, Stage, nodes_of
from oddrank.errors import OddrankError
from oddrank.machine import device
from oddrank.machine.device import usable_bytes
from oddrank.process_group import connect

_SHARE_FOR_REPEATS = 0.4  # share of the command's time for repeats beyond the fewest
# Most rounds in which one rank of each node meets others while the rest of its node waits. If all
# ranks need more rounds, only ranks that look slow beside others of their node meet, worst first.
_MOST_TURNS_ALONE = 24
# Healthy ranks of a doubted rank's node that are measured alone, too: if they are as slow, the node
# is slow.
_MATES = 1
_FEWEST, _FEWEST_IN_RECHECK = 4, 6  # fewest repeats in a pass
# Bytes of a message by default. On GPUs the launch of a message takes some microseconds, in which
# an NVLink moves a megabyte.
_SIZES = {"gloo": 16 << 20, "nccl": 256 << 20}
# Memory in messages: those under way to a rank that has not taken them yet, and torch's own.
_BUFFERS = 4

# Kind of game -> (peer, GB/s from it, us one way) of a rank's meetings.
Met: TypeAlias = "dict[str, list[tuple[int, list[float], list[float]]]]"


class Connected(TypedDict):
    """A rank's result of stage connect, here and in the self-test: its free bytes."""

    backend: str
    free: float


class Meetings(TypedDict):
    """The plan of a measurement. effort: the fields of Effort; games: packed."""

    backend: str
    effort: dict[str, Any]
    passes: int
    games: list[dict[str, Any]]


@dataclass(frozen=True)
class PairOptions:
    """size: bytes of a message, or None for the backend's own; seconds: for the run.
    effect: the smallest slowdown to look for, as a share."""

    size: int | None
    effect: float
    seconds: float


def stages(options: PairOptions, judge: Judge) -> list[AnyStage]:
    def make_plan(run: RunState) -> Meetings:
        return plan_of(run, options, games_of_all(nodes_of(run)))

    def plan_recheck(run: RunState) -> Meetings:
        return plan_of(run, options, games_of_recheck(judge, run), again=True)

    def plan_backend(run: RunState) -> str:
        return device.BACKENDS[device.choose(run.of("devices").values())]

    seconds = options.seconds
    return [
        Stage("devices", seconds, measure=_see_devices),
        Stage("connect", seconds, measure=_connect, plan=plan_backend),
        Stage(PAIRS, seconds, measure, lambda run, _: judge.suspects(run), make_plan),
        Stage(
            RECHECK, seconds, measure, lambda run, _: judge.confirmed(run), plan_recheck,
            confirms=PAIRS,
        ),
    ]  # fmt: skip


def _see_devices(context: Context[object]) -> device.GpuFacts:
    context.step("import torch")
    return device.facts(context.launch)


def _connect(context: Context[str]) -> Connected:
    group = connect(context, context.parameters)
    group.barrier()  # all ranks have arrived, and nccl has its communicator
    return {"backend": group.backend, "free": usable_bytes(group.computes_on, context.launch)}


def plan_of(
    run: RunState, options: PairOptions, games: Sequence[Game], *, again: bool = False
) -> Meetings:
    """Plans the games; each rank works out its own meetings. OddrankError: too little memory."""
    connected: Mapping[int, Connected] = run.of("connect")
    rank, free = min(((r, c["free"]) for r, c in connected.items()), key=lambda pair: pair[1])
    size = options.size or _SIZES[connected[0]["backend"]]
    if size * _BUFFERS > free:
        fits = max(1, int(free / _BUFFERS) >> 20)
        raise OddrankError(f"rank {rank} has no memory for messages this large: try --size {fits}M")
    turns = sum(game.turns() for game in games)
    passes = passes_of(turns)
    comparisons = sum(game.comparisons() for game in games)
    effort = Effort(
        size,
        error_wanted(options.effect, comparisons) * math.sqrt(passes),
        _SHARE_FOR_REPEATS * options.seconds / max(1, 2 * turns * passes),
        _FEWEST_IN_RECHECK if again else _FEWEST,
    )
    return {
        "backend": connected[0]["backend"],
        "effort": asdict(effort),
        "passes": passes,
        "games": pack(games, run.world),
    }


def measure(context: Context[Meetings]) -> Met:
    params = context.parameters
    group = connect(context, params["backend"])
    effort = Effort(**params["effort"])
    exchange = Exchange(context, group, effort, wire_of(context, group, effort.size))
    games = unpack(params["games"])
    met: Met = {}
    for one_pass in range(params["passes"]):
        for game in games:
            found = met.setdefault(game.where, [])
            for meeting in game.meetings(context.launch.rank, one_pass):
                rates, latency = exchange.meet(meeting, game.shared)
                if meeting.peer is not None:
                    found.append((meeting.peer, rates, latency))
            group.barrier()  # games never overlap
    return met


def games_of_all(nodes: Teams, *, inside: bool = True) -> list[Game]:
    """Returns the games of nodes, of their single ranks, and, if wanted, inside nodes."""
    between = [Game("nodes", nodes)] if len(nodes) > 1 else []
    if max(map(len, nodes)) == 1:
        return between
    places = range(max(map(len, nodes)))
    alone = _alone(nodes, range(len(nodes)), places) if between else []
    if _turns(alone) > _MOST_TURNS_ALONE:
        alone = []
    return [*between, *alone, *([Game("inside", nodes)] if inside else [])]


def games_of_recheck(judge: Judge, run: RunState) -> list[Game]:
    """Returns small games with suspects: of nodes, of single ranks, and inside nodes."""
    nodes = judge.measurement(run).nodes
    at = place_of(nodes)
    between = [at[rank][0] for rank in judge.doubted(run, "nodes")]
    alone = judge.doubted(run, "ranks")
    within = set(judge.doubted(run, "inside"))
    games = []
    if between:
        games.append(Game("nodes", [nodes[number] for number in panel(len(nodes), between)]))
    if alone:
        games += _alone_again(nodes, list(dict.fromkeys(alone)))
    if within:
        games.append(Game("inside", [_panel_of(node, within) for node in nodes]))
    return games


def _alone_again(nodes: Teams, doubted: Sequence[int]) -> list[Game]:
    """Returns games for as many doubted ranks as fit, the worst first, and for their mates."""
    at = place_of(nodes)
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
    """Returns games of these nodes, one local rank after the other."""
    return [
        Game("ranks", [(nodes[n][local],) for n in numbers if local < len(nodes[n])])
        for local in places
    ]


def _turns(games: Sequence[Game]) -> int:
    return sum(game.turns() for game in games)


def _panel_of(node: tuple[int, ...], doubted: set[int]) -> tuple[int, ...]:
    suspects = [local for local, rank in enumerate(node) if rank in doubted]
    return tuple(node[local] for local in panel(len(node), suspects))

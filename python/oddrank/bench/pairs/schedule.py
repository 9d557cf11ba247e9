"""Schedules the meetings of ranks: tournaments, and games made of them.

A tournament uses the circle method: one member keeps its place, all others move on by one around
it; after n - 1 rounds (n if n is odd: one member rests in each) all have met. Each round is a
perfect matching. Above MOST_FOR_ALL members only a few rounds over members in random order are
measured: a regular graph.

A game is a tournament between teams, whose members with the same index meet (local rank k of one
node with local rank k of the other). The root sends its games to all ranks in one short message,
and each rank works out its own meetings.
"""

import base64
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Literal

from oddrank.finding import grouped

# Up to MOST_FOR_ALL members all meet; larger groups meet in MATCHINGS random matchings. Simulated
# with 512 nodes, seven find a slow one in 99 % of runs and leave 0.3 others for the recheck.
MOST_FOR_ALL = 64
MATCHINGS = 7
# (most rounds, passes); more rounds: one pass. A short disturbance does not hurt every pass. Few
# links need more passes: of three passes over three links, one that was disturbed hid a slow link.
_PASSES = ((3, 5), (11, 3), (35, 2))
# Members of a recheck: the worst suspects, and more known-good ones.
MOST_SUSPECTS = 16
FEWEST_GOOD = 3


@dataclass(frozen=True)
class Tournament:
    """`members` are numbered from 0; `order` is their order in the circle."""

    members: int
    turns: tuple[int, ...]
    order: tuple[int, ...]

    @staticmethod
    @lru_cache(maxsize=64)
    def of(members: int, one_pass: int = 0) -> "Tournament":
        """Returns all rounds, or random ones above MOST_FOR_ALL members: the same on all ranks.

        one_pass: the pass's number. Each pass has the same meetings, in another order or grouping.
        """
        places = members + members % 2
        order = list(range(places))
        turns = list(range(places - 1 if members > 1 else 0))
        random = Random(members + (one_pass << 32))
        if members > MOST_FOR_ALL:
            same = Random(members)
            same.shuffle(order)
            turns = same.sample(turns, MATCHINGS)
            random.shuffle(turns)
        else:
            random.shuffle(order)
        return Tournament(members, tuple(turns), tuple(order))

    def partners(self, member: int) -> list[int | None]:
        """Returns the partner of `member` in each round; None if it rests."""
        place = self.order.index(member)
        met = (self.order[_opposite(place, turn, len(self.order))] for turn in self.turns)
        return [other if other < self.members else None for other in met]


def passes_of(turns: int) -> int:
    """Returns how many passes are made over so many rounds."""
    return next((times for most, times in _PASSES if turns <= most), 1)


def panel(members: int, suspects: Sequence[int]) -> list[int]:
    """Returns the suspects (only the worst if they are many) and known-good partners.
    The good ones are the majority, if there are enough, to compare the suspects with."""
    doubted = list(dict.fromkeys(suspects))[:MOST_SUSPECTS]
    good = [member for member in range(members) if member not in set(suspects)]
    wanted = max(FEWEST_GOOD, len(doubted) + 1)
    step = max(1, len(good) // wanted)  # spreads the good ones over all members, not over one rack
    return sorted([*doubted, *good[::step][:wanted]])


def _opposite(place: int, turn: int, places: int) -> int:
    """Returns the place opposite `place` in a round: the last place stays, the others rotate."""
    around = places - 1
    if place == around:
        return turn
    other = (2 * turn - place) % around
    return around if other == place else other


Teams = Sequence[tuple[int, ...]]


def place_of(nodes: Teams) -> dict[int, tuple[int, int]]:
    """Returns rank -> the number of its node, and its own there."""
    return {rank: (number, i) for number, node in enumerate(nodes) for i, rank in enumerate(node)}


# nodes: between nodes, all their ranks at once. ranks: between single ranks, one of each node at a
# time, so that none shares a network card. inside: between the ranks of each node.
Where = Literal["nodes", "ranks", "inside"]


@dataclass(frozen=True)
class Meeting:
    """One rank's part of a round. peer: None if it rests; first: whether it sends first."""

    peer: int | None
    first: bool = False


@dataclass(frozen=True)
class Game:
    """A tournament between teams, or inside each. teams: ranks, ascending, no rank twice."""

    where: Where
    teams: Teams

    @property
    def shared(self) -> bool:
        """Returns whether ranks of one node use its network card at the same time."""
        return self.where == "nodes" and max(map(len, self.teams), default=0) > 1

    def turns(self) -> int:
        """Returns the number of rounds in one pass."""
        if self.where != "inside":
            return len(Tournament.of(len(self.teams)).turns)
        return max((len(Tournament.of(len(team)).turns) for team in self.teams), default=0)

    def comparisons(self) -> int:
        """Returns roughly how many cells and parts are compared."""
        sizes = map(len, self.teams) if self.where == "inside" else [len(self.teams)]
        return sum(2 * size**2 for size in sizes)

    def meetings(self, rank: int, one_pass: int) -> list[Meeting]:
        """Returns this rank's meetings, turns() of them; all ranks' meetings run in parallel."""
        own = next((number for number, team in enumerate(self.teams) if rank in team), None)
        met: list[Meeting] = []
        if own is not None:
            team = self.teams[own]
            place = team.index(rank)
            if self.where == "inside":
                others = Tournament.of(len(team), one_pass).partners(place)
                met = [
                    Meeting(None) if other is None else Meeting(team[other], place < other)
                    for other in others
                ]
            else:
                # All ranks of a team send first, or none: they share the card's two directions.
                met = [
                    Meeting(self.teams[other][place], own < other)
                    if other is not None and place < len(self.teams[other])
                    else Meeting(None)
                    for other in Tournament.of(len(self.teams), one_pass).partners(own)
                ]
        return met + [Meeting(None)] * (self.turns() - len(met))


def pack(games: Sequence[Game], world: int) -> list[dict[str, Any]]:
    """Packs the games as JSON, short enough for one message with any number of ranks.

    teams: the number of each rank's team, compressed; None: as in the game before.
    """
    packed: list[dict[str, Any]] = []
    for number, game in enumerate(games):
        same = number > 0 and game.teams == games[number - 1].teams
        packed.append(
            {"where": game.where, "teams": None if same else pack_teams(game.teams, world)}
        )
    return packed


def unpack(packed: Sequence[dict[str, Any]]) -> list[Game]:
    games: list[Game] = []
    for game in packed:
        teams = games[-1].teams if game["teams"] is None else unpack_teams(game["teams"])
        games.append(Game(game["where"], teams))
    return games


def pack_teams(teams: Teams, world: int) -> str:
    """Packs the number of each rank's team, compressed, for `unpack_teams`."""
    numbers = array("H", bytes(2 * world))
    for number, team in enumerate(teams, 1):
        for rank in team:
            numbers[rank] = number
    # All low bytes, then all high ones, which repeat even if ranks are placed without order.
    data = numbers.tobytes()
    return base64.b85encode(zlib.compress(data[::2] + data[1::2], 9)).decode()


def unpack_teams(text: str) -> Teams:
    data = zlib.decompress(base64.b85decode(text))
    half = len(data) // 2
    pairs = zip(data[:half], data[half:], strict=True)
    numbers = array("H", bytes(byte for pair in pairs for byte in pair))
    teams = grouped((number, rank) for rank, number in enumerate(numbers) if number)
    return [tuple(teams[number]) for number in sorted(teams)]

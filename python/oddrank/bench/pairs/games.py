"""Who meets whom, as the root tells all ranks in one short message, and each works out for itself.

A game is a tournament between teams, of whom those in the same place meet (local rank k of one
node and local rank k of the other, all at once), or one inside each team, all teams at once.
"""

import base64
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oddrank.bench.pairs.tournament import Tournament

Teams = Sequence[tuple[int, ...]]
# Between nodes with all of their ranks at once; between single ranks of them, one a node at a
# time, so that nobody shares a way out with another; inside nodes.
Where = Literal["nodes", "ranks", "inside"]


@dataclass(frozen=True)
class Meeting:
    """peer: None where this rank rests; first: whether it sends first."""

    peer: int | None
    first: bool = False


@dataclass(frozen=True)
class Game:
    """teams: the ranks of each, in ascending order, none in two of them."""

    where: Where
    teams: Teams

    @property
    def shared(self) -> bool:
        """Whether ranks that share their node's way out meet others at the same time."""
        return self.where == "nodes" and max(map(len, self.teams), default=0) > 1

    def turns(self) -> int:
        """Rounds of one visit."""
        if self.where != "inside":
            return len(Tournament.of(len(self.teams)).turns)
        return max((len(Tournament.of(len(team)).turns) for team in self.teams), default=0)

    def comparisons(self) -> int:
        """About so many cells and parts are compared."""
        sizes = map(len, self.teams) if self.where == "inside" else [len(self.teams)]
        return sum(2 * size**2 for size in sizes)

    def meetings(self, rank: int, visit: int) -> list[Meeting]:
        """Of this rank, as many as turns(): those of all ranks go on side by side."""
        own = next((number for number, team in enumerate(self.teams) if rank in team), None)
        met: list[Meeting] = []
        if own is not None:
            meet = self._inside if self.where == "inside" else self._between
            met = meet(own, self.teams[own].index(rank), visit)
        return met + [Meeting(None)] * (self.turns() - len(met))

    def _between(self, own: int, place: int, visit: int) -> list[Meeting]:
        # All ranks of a team send first, or none: they share a way in and a way out.
        return [
            Meeting(self.teams[other][place], own < other)
            if other is not None and place < len(self.teams[other])
            else Meeting(None)
            for other in Tournament.of(len(self.teams), visit).partners(own)
        ]

    def _inside(self, own: int, place: int, visit: int) -> list[Meeting]:
        team = self.teams[own]
        return [
            Meeting(None) if other is None else Meeting(team[other], place < other)
            for other in Tournament.of(len(team), visit).partners(place)
        ]


def pack(games: Sequence[Game], world: int) -> list[dict[str, Any]]:
    """As JSON, short enough for one message however many ranks there are and wherever they are.

    The teams of a game are the number of each rank's team, compressed; None: as of the game before.
    """
    told: list[dict[str, Any]] = []
    for number, game in enumerate(games):
        same = number > 0 and game.teams == games[number - 1].teams
        told.append({"where": game.where, "teams": None if same else pack_teams(game.teams, world)})
    return told


def unpack(told: Sequence[dict[str, Any]]) -> list[Game]:
    """What `pack` was given."""
    games: list[Game] = []
    for game in told:
        teams = games[-1].teams if game["teams"] is None else unpack_teams(game["teams"])
        games.append(Game(game["where"], teams))
    return games


def pack_teams(teams: Teams, world: int) -> str:
    """The number of each rank's team, compressed; for `unpack_teams`."""
    numbers = array("H", bytes(2 * world))
    for number, team in enumerate(teams, 1):
        for rank in team:
            numbers[rank] = number
    # Low bytes first, then high ones: those repeat where ranks are placed without any order.
    data = numbers.tobytes()
    return base64.b85encode(zlib.compress(data[::2] + data[1::2], 9)).decode()


def unpack_teams(text: str) -> Teams:
    data = zlib.decompress(base64.b85decode(text))
    half = len(data) // 2
    pairs = zip(data[:half], data[half:], strict=True)
    numbers = array("H", bytes(byte for pair in pairs for byte in pair))
    teams: dict[int, list[int]] = {}
    for rank, number in enumerate(numbers):
        if number:
            teams.setdefault(number, []).append(rank)
    return [tuple(teams[number]) for number in sorted(teams)]

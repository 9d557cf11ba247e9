"""Who meets whom, round by round: the pairs of a round are disjoint, so that all run at once.

A round-robin tournament by the circle method: one member stays, the others move on by one place
around it; after n - 1 rounds (n if n is odd: one rests in each) everybody has met everybody once.
Each of its rounds is a perfect matching, so that a few of them over members in random order are
random perfect matchings without a pair twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

# Up to here everybody meets everybody; beyond, that many random matchings: simulated at 512 nodes,
# seven find a slow one in 99 % and leave 0.3 others to pair again.
MOST_FOR_ALL = 64
MATCHINGS = 7
# How often everybody meets everybody, the more often the fewer rounds that takes: who is slow
# because of something that passes is not slow every time.
_VISITS = ((1, 5), (11, 3), (35, 2))
# Of those that meet again: the worst suspects, and more that are known to be good.
MOST_SUSPECTS = 16
FEWEST_GOOD = 3


@dataclass(frozen=True)
class Tournament:
    """`members` are numbered from 0; `order` is who sits where in the circle."""

    members: int
    turns: tuple[int, ...]
    order: tuple[int, ...]

    @staticmethod
    @lru_cache(maxsize=64)
    def of(members: int, visit: int = 0) -> "Tournament":
        """All rounds, or random ones above MOST_FOR_ALL members: the same on all ranks.

        visit: in another one everybody meets the same, in other company or in another order.
        """
        places = members + members % 2
        order = list(range(places))
        turns = list(range(places - 1 if members > 1 else 0))
        random = Random(members + (visit << 32))
        if members > MOST_FOR_ALL:
            same = Random(members)
            same.shuffle(order)
            turns = same.sample(turns, MATCHINGS)
            random.shuffle(turns)
        else:
            random.shuffle(order)
        return Tournament(members, tuple(turns), tuple(order))

    def partners(self, member: int) -> list[int | None]:
        """Whom `member` meets, round by round; None where it rests."""
        place = self.order.index(member)
        met = (self.order[_opposite(place, turn, len(self.order))] for turn in self.turns)
        return [other if other < self.members else None for other in met]

    def rounds(self) -> list[list[tuple[int, int]]]:
        """The pairs of every round, the lower member first."""
        return [
            sorted(
                (min(pair), max(pair))
                for place in range(len(self.order) // 2)
                for pair in [_at_table(self.order, place, turn)]
                if max(pair) < self.members
            )
            for turn in self.turns
        ]


def visits_of(turns: int) -> int:
    """How often so many rounds are played."""
    return next((times for most, times in _VISITS if turns <= most), 1)


def panel(members: int, suspects: Sequence[int]) -> list[int]:
    """The suspects (the worst first, which remain if they are many) and known-good partners.

    The good ones are the majority where there are enough of them, so that a second judgement of
    this small tournament has somebody to compare with.
    """
    doubted = list(dict.fromkeys(suspects))[:MOST_SUSPECTS]
    good = [member for member in range(members) if member not in set(suspects)]
    wanted = max(FEWEST_GOOD, len(doubted) + 1)
    # Spread over all, so that they are not all of one rack.
    step = max(1, len(good) // wanted)
    return sorted([*doubted, *good[::step][:wanted]])


def _opposite(place: int, turn: int, places: int) -> int:
    """Who sits opposite: the last place stays, the others move around it."""
    around = places - 1
    if place == around:
        return turn
    other = (2 * turn - place) % around
    return around if other == place else other


def _at_table(order: Sequence[int], table: int, turn: int) -> tuple[int, int]:
    around = len(order) - 1
    place = around if table == 0 else (turn + table) % around
    return order[place], order[_opposite(place, turn, len(order))]

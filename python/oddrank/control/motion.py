"""Whether the ranks still came further when a deadline came: slow is not stuck."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from oddrank.control.culprits import Culprit

if TYPE_CHECKING:
    from oddrank.control.root import RankState

# Guards tell marks with their heartbeats. A rank that has just moved is not stuck yet, nor one
# that is still for no longer than it was twice before it went on (once may have been the import of
# torch); while anybody moves, those who all wait for each other do not wait in vain.
_JUST_NOW = 0.5
_LATELY = 5.0


class Motion:
    """When each rank of the job was last seen to come further."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[int, tuple[int, float]] = {}
        self._stays: dict[int, tuple[float, float]] = {}  # by rank, the longest and the next

    def see(self, states: Iterable["RankState"]) -> None:
        now = self._clock()
        for s in states:
            last = self._seen.get(s.rank)
            if last is not None and last[0] == s.progress:
                continue
            if last is not None:
                known = self._stays.get(s.rank, (0.0, 0.0))
                _, second, longest = sorted((*known, now - last[1]))
                self._stays[s.rank] = (longest, second)
            self._seen[s.rank] = (s.progress, now)

    def goes_on(self) -> bool:
        """Whether any rank moved lately."""
        return self._youngest(self._seen) < _LATELY

    def excuse(self, found: Sequence[Culprit]) -> list[Culprit]:
        """`found` without those who only look stuck because the time was short."""
        return [culprit for culprit in found if not self._only_slow(culprit)]

    def _only_slow(self, culprit: Culprit) -> bool:
        if culprit.cause == "all-wait":
            return self.goes_on()
        stays = [self._stays[rank][1] for rank in culprit.ranks if rank in self._stays]
        usual = min(_LATELY, max([_JUST_NOW, *(1.5 * stay for stay in stays)]))
        return culprit.cause == "no-progress" and self._youngest(culprit.ranks) < usual

    def _youngest(self, ranks: Iterable[int]) -> float:
        """Seconds since the last move of any of them."""
        moves = [self._seen[rank][1] for rank in ranks if rank in self._seen]
        return self._clock() - max(moves, default=-math.inf)

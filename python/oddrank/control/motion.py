"""Tells slow ranks from stuck ones at a deadline, by when each last made progress."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from oddrank.control.culprits import Culprit

if TYPE_CHECKING:
    from oddrank.control.root import RankState

# Guards report progress with their heartbeats. A rank is not stuck yet if it moved within
# _JUST_NOW, or within 1.5 times its second longest pause, at most _LATELY (the longest pause may
# be the import of torch). Ranks that all wait for each other are not stuck if any rank moved
# within _LATELY.
_JUST_NOW = 0.5
_LATELY = 5.0


class Motion:
    """Notes when each rank last made progress."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[int, tuple[int, float]] = {}
        self._stays: dict[int, tuple[float, float]] = {}  # rank -> its two longest pauses

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
        """Returns whether any rank moved within _LATELY."""
        return self._youngest(self._seen) < _LATELY

    def excuse(self, found: Sequence[Culprit]) -> list[Culprit]:
        """Returns `found` without culprits that may only be slow."""
        return [culprit for culprit in found if not self._only_slow(culprit)]

    def _only_slow(self, culprit: Culprit) -> bool:
        if culprit.cause == "all-wait":
            return self.goes_on()
        stays = [self._stays[rank][1] for rank in culprit.ranks if rank in self._stays]
        usual = min(_LATELY, max([_JUST_NOW, *(1.5 * stay for stay in stays)]))
        return culprit.cause == "no-progress" and self._youngest(culprit.ranks) < usual

    def _youngest(self, ranks: Iterable[int]) -> float:
        """Returns the seconds since any of the ranks last moved."""
        moves = [self._seen[rank][1] for rank in ranks if rank in self._seen]
        return self._clock() - max(moves, default=-math.inf)

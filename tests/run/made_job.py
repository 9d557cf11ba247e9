"""Collectives of a job that never ran, as its records would show them."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from oddrank.trace.collectives import Collective

_KEPT = 64  # as in a slim record
_NS = 1_000_000_000
_START = 1_800_000_000 * _NS


class MadeJob:
    """A job whose ranks run steps of collectives, one after the other.

    groups: those that each step uses, in this order; empty: all ranks. step: seconds that ranks
    work in each step. jitter: seconds, mean of what each rank adds at random to each collective and
    to each exit.
    """

    def __init__(
        self,
        world: int,
        groups: Sequence[tuple[str, tuple[int, ...]]] = (),
        *,
        step: float = 0.05,
        jitter: float = 0.001,
        seed: int = 1,
    ) -> None:
        self._groups = groups or [("default", tuple(range(world)))]
        self._seconds = step
        self._chance, self._jitter = random.Random(seed), jitter
        self._now = [0.0] * world
        self._seqs: dict[tuple[str, tuple[int, ...]], int] = defaultdict(int)
        self._histories: dict[int, list[Collective]] = {rank: [] for rank in range(world)}

    def runs(
        self,
        steps: int,
        *,
        late: Mapping[int, float] | None = None,
        share: float = 1.0,
        leaves: Mapping[int, float] | None = None,
        ahead: Mapping[int, float] | None = None,
        **facts: object,
    ) -> dict[int, list[Collective]]:
        """Runs steps; returns what the ranks' records then hold.

        late: seconds that a rank takes longer before the first collective of a step, in this share
        of steps. leaves: seconds that a rank leaves each collective later. ahead: seconds that a
        rank's clock is ahead. facts: of all collectives, instead of the usual ones.
        """
        for _ in range(steps):
            for rank in range(len(self._now)):
                more = (late or {}).get(rank, 0.0) if self._chance.random() < share else 0.0
                self._now[rank] += self._seconds + more
            for place, (name, ranks) in enumerate(self._groups):
                self._seqs[name, ranks] += 1
                begins = {rank: self._now[rank] + self._noise() for rank in ranks}
                for rank in ranks:
                    end = max(begins.values()) + (leaves or {}).get(rank, 0.0) + self._noise()
                    clock = _START + round((ahead or {}).get(rank, 0.0) * _NS)
                    made = Collective(
                        7, name, self._seqs[name, ranks], "allreduce_", 4 * (place + 1), "ended",
                        clock + round(begins[rank] * _NS), clock + round(end * _NS), ranks, "gloo",
                        "float32",
                    )._replace(**facts)  # fmt: skip
                    self._histories[rank].append(made)
                    self._now[rank] = end
        return {rank: history[-_KEPT:] for rank, history in self._histories.items()}

    def _noise(self) -> float:
        return self._chance.expovariate(1 / self._jitter)


class MadeBackward:
    """A training with DDP on GPUs: buckets are reduced while the backward pass goes on.

    So all ranks take as long for a step, and for their backward pass, whoever is slow. As records
    show it: when the host issued each bucket, far ahead of the GPU, and how long NCCL had it.
    """

    def __init__(self, world: int, *, jitter: float = 0.0003, seed: int = 1) -> None:
        self._ranks, self._buckets = tuple(range(world)), 0
        self._chance, self._jitter = random.Random(seed), jitter
        self._now = [0.0] * world

    def runs(
        self,
        steps: int,
        *,
        slow: Mapping[int, float] | None = None,
        loads: Mapping[int, float] | None = None,
    ) -> dict[int, list[Collective]]:
        """slow: how many times as long a rank's backward pass takes. loads: seconds before it."""
        found: dict[int, list[Collective]] = {rank: [] for rank in self._ranks}
        for _ in range(steps):
            ready = [at + 0.03 + (loads or {}).get(r, 0.0) for r, at in enumerate(self._now)]
            free = [0.0] * len(ready)
            for bucket in range(1, 6):
                self._buckets += 1
                for rank in self._ranks:
                    ready[rank] += 0.01 * (slow or {}).get(rank, 1.0) + self._noise()
                begins = [max(pair) for pair in zip(ready, free, strict=True)]
                free = [max(begins) + 0.004 + self._noise() / 10 for _ in begins]
                for rank, (begin, end) in enumerate(zip(begins, free, strict=True)):
                    issued = round((self._now[rank] + 0.001 * bucket + 1000 * rank) * _NS)
                    found[rank].append(
                        Collective(
                            7, "0", self._buckets, "all_reduce", bucket << 20, "timed", issued,
                            issued + round((end - begin) * _NS), self._ranks, "nccl", "float32",
                        )
                    )  # fmt: skip
            self._now = free
        return {rank: calls[-256:] for rank, calls in found.items()}

    def _noise(self) -> float:
        return self._chance.expovariate(1 / self._jitter)

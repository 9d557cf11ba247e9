"""Initial values, sizes of parallel groups and batches, and Megatron's batch-size ramp-up."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oddrank.errors import OddrankError

# Rule -> standard deviation of the initial weights for a hidden size, and the rule's source.
INIT_STDS: dict[str, tuple[Callable[[int], float], str]] = {
    "sqrt(2 / (5 h))": (
        lambda hidden: math.sqrt(2 / (5 * hidden)),
        "Nguyen and Salazar 2019, Transformers without Tears (arXiv 1910.05895); BLOOM's 104B",
    ),
    "sqrt(1 / (3 h))": (
        lambda hidden: math.sqrt(1 / (3 * hidden)),
        "Smith et al. 2022, Megatron-Turing 530B (arXiv 2201.11990); BLOOM-176B",
    ),
}
MEGATRON_STD = 0.02
"""Megatron-LM's default of --init-method-std. Too large for BLOOM's 104B, says the handbook."""
_MOST_STAGES = 100_000


def data_parallel(world: int, tp: int = 1, pp: int = 1, cp: int = 1) -> int:
    """Returns the number of replicas: world / (TP * PP * CP).

    world: ranks of the job. tp, pp, cp: sizes of tensor, pipeline and context parallelism.
    OddrankError with the nearest worlds if it does not divide.
    """
    _at_least_one(world=world, tp=tp, pp=pp, cp=cp)
    replica = tp * pp * cp
    if world % replica:
        raise OddrankError(
            f"{world} ranks don't divide by TP x PP x CP = {tp} x {pp} x {cp} = {replica}: use"
            f" {_nearest(world, replica)} ranks"
        )
    return world // replica


def microbatches(global_batch: int, micro_batch: int, dp: int) -> int:
    """Returns the micro-batches of one replica in an iteration (gradient accumulation steps).

    global_batch, micro_batch: samples. dp: replicas.
    OddrankError with the nearest global batch sizes if it does not divide.
    """
    _at_least_one(global_batch=global_batch, micro_batch=micro_batch, dp=dp)
    at_once = micro_batch * dp
    if global_batch % at_once:
        raise OddrankError(
            f"global batch size {global_batch} doesn't divide by micro-batch size x DP ="
            f" {micro_batch} x {dp} = {at_once}: use {_nearest(global_batch, at_once)}"
        )
    return global_batch // at_once


def bubble(pp: int, microbatches: int) -> float:
    """Returns the share of an iteration in which a pipeline stage waits: (p - 1) / (m + p - 1).

    For the 1F1B schedule. Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.1, which
    gives the bubble as (p - 1) / m of the ideal time; the iteration has both.
    """
    _at_least_one(pp=pp, microbatches=microbatches)
    return (pp - 1) / (microbatches + pp - 1)


@dataclass(frozen=True)
class Stage:
    """A batch size of the ramp-up, the iterations and samples before it, its iterations.

    iterations: None for the last stage, which has no end.
    """

    batch_size: int
    first_iteration: int
    first_sample: int
    iterations: int | None


@dataclass(frozen=True)
class RampUp:
    """Megatron-LM's --rampup-batch-size START INCREMENT SAMPLES with --global-batch-size GOAL.

    The batch grows from `start` to `goal` samples in equal steps, within the first `samples`
    samples of the whole training, not after so many samples each.
    Source: Megatron-LM, megatron/core/num_microbatches_calculator.py. Its numbers agree with the
    log of BLOOM-176B: iteration 12695 ended at sample 9,841,584.
    """

    start: int
    increment: int
    samples: int
    goal: int

    def __post_init__(self) -> None:
        _at_least_one(
            start=self.start, increment=self.increment, samples=self.samples, goal=self.goal
        )
        if self.start > self.goal:
            raise OddrankError(
                f"the ramp-up starts at {self.start} samples, above the global batch size"
                f" {self.goal}: start lower"
            )
        if (self.goal - self.start) % self.increment:
            near = _nearest(self.goal - self.start, self.increment, add=self.start)
            raise OddrankError(
                f"steps of {self.increment} don't lead from {self.start} to the global batch size"
                f" {self.goal}: use a global batch size of {near}"
            )
        if self.steps > _MOST_STAGES:
            raise OddrankError(
                f"the ramp-up has {self.steps} steps, over {_MOST_STAGES}: use a larger increment"
            )

    @property
    def steps(self) -> int:
        """Returns how often the batch size grows."""
        return (self.goal - self.start) // self.increment

    @property
    def most_replicas(self) -> int:
        """Returns the largest micro-batch size x DP that divides the batch size of each stage."""
        return math.gcd(self.start, self.increment) if self.steps else self.start

    def batch_size(self, consumed: int) -> int:
        """Returns the samples of the iteration that begins after `consumed` samples."""
        if consumed >= self.samples:
            return self.goal
        return self.start + consumed * self.steps // self.samples * self.increment

    def stages(self) -> Iterator[Stage]:
        """Yields the batch sizes in order. One that no iteration has is left out."""
        iteration = sample = 0
        while sample < self.samples and (batch := self.batch_size(sample)) < self.goal:
            step = (batch - self.start) // self.increment + 1
            until = -(-step * self.samples // self.steps)  # the first sample of the next step
            count = -(-(until - sample) // batch)
            yield Stage(batch, iteration, sample, count)
            iteration += count
            sample += count * batch
        yield Stage(self.goal, iteration, sample, None)

    def check(self, micro_batch: int, dp: int) -> None:
        """Raises OddrankError if a stage does not divide by micro-batch size x DP."""
        most, at_once = self.most_replicas, micro_batch * dp
        wrong = [one.batch_size for one in self.stages() if one.batch_size % at_once]
        if not wrong:
            return
        said = f"the ramp-up's batch size {wrong[0]} doesn't divide by micro-batch size"
        if most % micro_batch:
            raise OddrankError(f"{said} {micro_batch}: use one that divides {most}")
        raise OddrankError(
            f"{said} x DP = {micro_batch} x {dp} = {at_once}: until the ramp-up ends, DP may be"
            f" {_divisors(most // micro_batch)}"
        )

    def iterations(self, samples: int) -> int:
        """Returns the iterations of a training over `samples`. The last, partial batch is dropped.

        Source: Megatron-LM, megatron/training/training.py, update_train_iters.
        """
        *_, last = self.stages()
        if samples < last.first_sample:
            raise OddrankError(
                f"{samples} samples end before the ramp-up, which takes {last.first_sample}"
            )
        return last.first_iteration + (samples - last.first_sample) // self.goal


def _nearest(value: int, step: int, add: int = 0) -> str:
    """Returns the multiples of `step` next to `value`, with `add`: "992 or 1008"."""
    low = value // step * step
    return f"{low + add} or {low + add + step}" if low else str(step + add)


def _divisors(value: int) -> str:
    found = [one for one in range(1, min(value, 4096) + 1) if not value % one]
    return ", ".join(map(str, found[-6:]))


def _at_least_one(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise OddrankError(f"{name} is {value}: give a number from 1")

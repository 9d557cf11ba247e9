"""Sizes of parallel groups and batches, and the pipeline's bubble."""

from oddrank.errors import OddrankError
from oddrank.plan.flops import positive


def data_parallel(world: int, tp: int = 1, pp: int = 1, cp: int = 1) -> int:
    """Returns the number of replicas: world / (TP * PP * CP).

    world: ranks of the job. tp, pp, cp: sizes of tensor, pipeline and context parallelism.
    OddrankError with the nearest worlds if it does not divide.
    """
    positive(world=world, tp=tp, pp=pp, cp=cp)
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
    positive(global_batch=global_batch, micro_batch=micro_batch, dp=dp)
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
    positive(pp=pp, microbatches=microbatches)
    return (pp - 1) / (microbatches + pp - 1)


def _nearest(value: int, step: int) -> str:
    """Returns the multiples of `step` next to `value`: "992 or 1008"."""
    low = value // step * step
    return f"{low} or {low + step}" if low else str(step)

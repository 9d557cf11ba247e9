"""How often a training should save a checkpoint, and what failures and saves cost."""

import math

from oddrank.errors import OddrankError
from oddrank.plan.flops import positive

YOUNG = "Young 1974, sqrt(2 x save x MTBF)"
DALY = "Daly 2006 (doi 10.1016/j.future.2004.11.016)"


def young_interval(save: float, mtbf: float) -> float:
    """Returns the seconds of work between two checkpoints: sqrt(2 * save * mtbf).

    save: seconds that training waits for a checkpoint. mtbf: mean seconds between two failures of
    the whole job. Source: Young 1974, A first order approximation to the optimum checkpoint
    interval.
    """
    positive(save=save, mtbf=mtbf)
    return math.sqrt(2 * save * mtbf)


def daly_interval(save: float, mtbf: float) -> float:
    """Returns the seconds of work between two checkpoints, for a save that is not short, too.

    Arguments as young_interval's. Source: Daly 2006, A higher order estimate of the optimum
    checkpoint interval for restart dumps: sqrt(2dM) [1 + sqrt(d/2M) / 3 + d/18M] - d for d < 2M,
    else M.
    """
    positive(save=save, mtbf=mtbf)
    if save >= 2 * mtbf:
        return mtbf
    ratio = save / (2 * mtbf)
    return math.sqrt(2 * save * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def lost_share(interval: float, save: float, mtbf: float, restart: float = 0) -> float:
    """Returns the share of time lost to saves, to work that is done again, and to restarts.

    interval: seconds of work between two checkpoints. restart: seconds from a failure until
    training goes on. Failures come at random, with the same rate at all times.
    Source: Daly 2006: wall time M e^(R/M) (e^((t+d)/M) - 1) for each t of work.
    """
    positive(interval=interval, save=save, mtbf=mtbf)
    if not 0 <= restart < float("inf"):
        raise OddrankError(f"a restart of {restart} s: give a number from 0")
    try:
        wall = mtbf * math.exp(restart / mtbf) * math.expm1((interval + save) / mtbf)
    except OverflowError:
        return 1.0
    return 1 - interval / wall

"""How long a training takes, with its downtime, and how often it should save a checkpoint."""

import math

from oddrank.errors import OddrankError

YOUNG = "Young 1974, sqrt(2 x save x MTBF)"
DALY = "Daly 2006 (doi 10.1016/j.future.2004.11.016)"
_DAY_HOURS = 24


def run_seconds(
    iterations: float, seconds: float, *, hours_per_day: float = 24, overhead: float = 0
) -> float:
    """Returns the seconds until a training ends.

    iterations: those left. seconds: of an iteration. hours_per_day: how long it runs each day, as
    far as queues and failures let it. overhead: further work (evaluation, checkpoints) as a
    fraction of the iterations' time.
    Source: chronicles of BLOOM-176B (115311 - 12695 iterations of 105 s: 124.7 days) and of
    tr1-13B (145 million samples at 24.5 a second, 20 hours a day: 82 days).
    """
    _positive(iterations=iterations, seconds=seconds)
    if not 0 < hours_per_day <= _DAY_HOURS:
        raise OddrankError(f"{hours_per_day} hours a day: give a number above 0, at most 24")
    if not 0 <= overhead < float("inf"):
        raise OddrankError(f"an overhead of {overhead}: give a fraction from 0")
    return iterations * seconds * (1 + overhead) * _DAY_HOURS / hours_per_day


def young_interval(save: float, mtbf: float) -> float:
    """Returns the seconds of work between two checkpoints: sqrt(2 * save * mtbf).

    save: seconds that training waits for a checkpoint. mtbf: mean seconds between two failures of
    the whole job. Source: Young 1974, A first order approximation to the optimum checkpoint
    interval.
    """
    _positive(save=save, mtbf=mtbf)
    return math.sqrt(2 * save * mtbf)


def daly_interval(save: float, mtbf: float) -> float:
    """Returns the seconds of work between two checkpoints, for a save that is not short, too.

    Arguments as young_interval's. Source: Daly 2006, A higher order estimate of the optimum
    checkpoint interval for restart dumps: sqrt(2dM) [1 + sqrt(d/2M) / 3 + d/18M] - d for d < 2M,
    else M.
    """
    _positive(save=save, mtbf=mtbf)
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
    _positive(interval=interval, save=save, mtbf=mtbf)
    if not 0 <= restart < float("inf"):
        raise OddrankError(f"a restart of {restart} s: give a number from 0")
    try:
        wall = mtbf * math.exp(restart / mtbf) * math.expm1((interval + save) / mtbf)
    except OverflowError:
        return 1.0
    return 1 - interval / wall


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise OddrankError(f"{name} is {value}: give a number above 0")

"""Statistics of peers: slow or late ones, the smallest slowdown detectable, the majority's value.

Numbers in, numbers out. `majority` is for peers that should have the same value, `compare` for
figures, `late_ranks` for arrivals at collectives, which `oddrank bench` measures and `oddrank run`
reads in records. Peers of one class have the same hardware, MIG profile and power cap. The rule:

- A peer's value is the median of its repeats. Its reference is the median of the *others'* values:
  with few peers, a median that includes the suspect would halve its lag.
- effect = how much longer it takes than its reference: 0.05 is 5 %. The lower bound is the effect
  less z standard errors. z is chosen for all comparisons of a run together: `ALARM` of the runs
  name a healthy peer.
- line = max(2/3 of the smallest effect looked for, t * healthy spread of the peers and of the
  median of the others). t is Student's, with the degrees of freedom of the spread's estimate. The
  line is below the effect looked for: at the effect itself, every second slow peer would be missed.
- lower > line: slow. Only effect > line: a suspect. Measure it again together with peers known to
  be good, and call `compare` with those repeats alone and with `comparisons`, `spread` and `line`
  of the first call. A suspect that is left when the budget ends is "unknown".

The healthy spread is how much healthy peers differ, beyond the noise of their repeats. Fewer than
`MANY` peers cannot tell it from a slow peer. It then counts as 0, and only the noise of the repeats
protects healthy peers. Simulated: benchmarks/selftest/simulated_clusters.py.
"""

import bisect
import math
import statistics
from array import array
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from oddrank.errors import OddrankError
from oddrank.finding import Level, grouped

ALARM = 0.01  # probability that a run names a healthy peer, over all of its comparisons
MANY = 16  # least number of peers whose values estimate the healthy spread
LINE = 2 / 3  # share of the smallest effect: a peer is named if its lower bound exceeds it
MAD = 1.4826  # standard deviation of a normal distribution, in median absolute deviations
DEGREES_OF_DEVIATION = 0.37  # degrees of freedom per value of `deviation` (of a variance: 1)
_FOUND = 0.95  # share of runs that find the effect `visible`
_QUANTILE = statistics.NormalDist().inv_cdf(_FOUND)
MEDIAN = 1.2533  # standard error of a median over a mean's: sqrt(pi / 2)
_OWN = 4  # least repeats for a peer's own noise to count
_CHANCE = 4  # standard deviations by which a figure's spread differs from the others' by chance
_FEW = 4  # among fewer peers a single slow one makes up most of the spread
Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value", bound=Hashable)
_STEPS = 20  # quantiles in steps of 5 %: enough to read the share of iterations above any line
SMALLEST_EFFECT = 3.0  # the smallest lateness looked for, in healthy spreads


@dataclass(frozen=True)
class Majority(Generic[Name, Value]):
    """The vote of peers that should all have the same value."""

    groups: tuple[tuple[Value, tuple[Name, ...]], ...]
    """Each value with its peers, most votes first; among equals the first peer's value first."""
    count: float  # votes for the first value
    votes: float  # all votes
    is_enough: bool  # whether peers with another value may be named

    @property
    def value(self) -> Value:
        return self.groups[0][0]

    @property
    def deviants(self) -> tuple[Name, ...]:
        """The peers with another value."""
        return tuple(name for _, names in self.groups[1:] for name in names)


def majority(
    values: Mapping[Name, Value], *, least: float = 0.5, weights: Mapping[Name, float] | None = None
) -> Majority[Name, Value]:
    """Returns the value that most peers have, and the peers that deviate.

    values: one for each peer, at least one. least: the first value is enough with more than this
    share of the votes. weights: a peer's votes, if not one each.
    """
    peers = grouped((value, name) for name, value in values.items())
    counts = {
        value: sum(weights[name] for name in names) if weights else len(names)
        for value, names in peers.items()
    }
    ordered = sorted(peers, key=lambda value: -counts[value])
    groups = tuple((value, tuple(peers[value])) for value in ordered)
    count, votes = counts[ordered[0]], sum(counts.values())
    return Majority(groups, count, votes, count > least * votes)


@dataclass(frozen=True)
class Peer(Generic[Name]):
    """One peer against the others. value and reference are in the caller's unit."""

    name: Name
    value: float
    reference: float
    effect: float  # how much longer it takes than the reference, as a fraction; negative: shorter
    lower: float  # lower bound of the effect
    repeats: int


@dataclass(frozen=True)
class Comparison(Generic[Name]):
    """All peers, the slowest first, and the thresholds (fractions)."""

    peers: tuple[Peer[Name], ...]
    line: float
    noise: float | None  # standard deviation of a single repeat; None if no peer was measured twice
    spread: float  # standard deviation of healthy peers beyond the noise of their repeats
    visible: float  # the smallest effect that 95 of 100 runs name at once; infinite: none would be
    z: float  # standard errors between a peer's effect and its lower bound

    @property
    def level(self) -> Level:
        """Confidence that a named peer is slow: with two peers, the other may be unusually fast."""
        if len(self.peers) < 3:
            return "low"
        return "medium" if len(self.peers) == 3 else "high"

    def is_slow(self, peer: Peer[Name], sure: float = 0.0) -> bool:
        """Returns whether a peer is named. sure: a line that it must be beyond, too."""
        return peer.lower > max(self.line, sure)

    def visible_after(self, repeats: int) -> float:
        """Returns the smallest effect that `repeats` of all peers show in 95 of 100 runs."""
        if self.noise is None:
            return math.inf
        own = self.noise * of_median(repeats)
        error = own * math.hypot(1.0, of_median(len(self.peers) - 1))
        return self.line + (self.z + _QUANTILE) * error + _QUANTILE * self.spread


def _summed_up(
    peers: Collection[Sequence[float]], sign: float
) -> tuple[list[float], list[float], float | None, int]:
    """Returns each peer's median and standard deviation (0 of one repeat) of logarithms.

    Then the pooled standard deviation of one repeat, None if no peer has two, and the number of
    deviations behind it. By median deviations: a few odd repeats change nothing.
    """
    medians, scatters, pooled = [], [], array("d")
    for values in peers:
        if not values:
            raise OddrankError("a peer has no values: it cannot be compared")
        for value in values:
            if not 0 < value < math.inf:
                raise OddrankError(
                    f"{value:f} cannot be compared: times and rates are above 0 and finite"
                )
        logs = sorted([sign * math.log(value) for value in values])
        median = _median_of_sorted(logs)
        medians.append(median)
        # Without the smallest one, which is the median's own or its mirror's, and scaled for the
        # degree of freedom that the median takes.
        left = len(logs) - 1
        scale = math.sqrt((left + 1) / left) if left else 0.0
        own = sorted([scale * abs(log - median) for log in logs])[1:]
        pooled.extend(own)
        scatters.append(MAD * _median_of_sorted(own) if own else 0.0)
    noise = MAD * _median_of_sorted(sorted(pooled)) if pooled else None
    return medians, scatters, noise, len(pooled)


def _median_of_sorted(values: Sequence[float]) -> float:
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def compare(
    measured: Mapping[Name, Sequence[float]], *, smallest: float = 0.03,
    better: Literal["low", "high"], comparisons: int | None = None, spread: float | None = None,
    line: float | None = None, good: Collection[Name] = (),
) -> Comparison[Name]:  # fmt: skip
    """Compares each peer's repeats with the others'.

    measured: at least two peers, each with at least one value above 0. smallest: the smallest
    effect looked for. better: "low" for times, "high" for rates. comparisons: peers times metrics
    of the whole run, if there are more than these. spread: the healthy spread, if known. line: the
    least threshold. good: the only peers to compare others with, if there are two or more.
    OddrankError for fewer than two peers.
    """
    if len(measured) < 2:
        raise OddrankError("two peers are needed to compare")
    sign = 1.0 if better == "low" else -1.0
    repeats = [len(values) for values in measured.values()]
    medians, scatters, noise, deviations = _summed_up(measured.values(), sign)
    own = dict(zip(measured, medians, strict=True))
    references, others = _references(own, good)
    errors = [_error(*each, noise or 0.0) for each in zip(repeats, scatters, strict=True)]
    if spread is None:
        center = statistics.median(medians)
        usual_error = (noise or 0.0) * statistics.median(map(of_median, repeats))
        differing = spread_of([value - center for value in medians], usual_error)
    else:
        differing = spread
    degrees = DEGREES_OF_DEVIATION * deviations if deviations else math.inf
    z = z_of(max(comparisons or 0, len(measured)), degrees)
    # A given spread counts as exact; else these peers estimate it.
    of_spread = math.inf if spread is not None else DEGREES_OF_DEVIATION * len(measured)
    t = max(z, z_of(max(comparisons or 0, len(measured)), of_spread))
    line = max(line or 0.0, line_of(smallest, t, differing, others))
    blind = noise is None and differing == 0.0  # no reference for the usual value
    found = []
    typical = []
    usual = medians_of_others(errors)
    for (name, value), reference, own_error, other, count in zip(
        own.items(), references, errors, usual, repeats, strict=True
    ):
        error = math.hypot(own_error, other * of_median(others))
        typical.append(error)
        lower = -math.inf if blind else value - reference - z * error
        both = math.exp(sign * value), math.exp(sign * reference)
        effect, least = math.expm1(value - reference), math.expm1(lower)
        found.append(Peer(name, *both, effect, least, count))
    found.sort(key=lambda peer: -peer.effect)
    margin = (z + _QUANTILE) * statistics.median(typical) + _QUANTILE * differing
    visible = math.inf if blind else line + margin
    return Comparison(tuple(found), line, noise, differing, visible, z)


def z_of(comparisons: int, degrees: float = math.inf) -> float:
    """Returns the standard errors that keep all comparisons together at `ALARM`, one-sided.

    degrees: the standard error's degrees of freedom, at least 1; if finite, uses Student's t.
    """
    share = ALARM / max(comparisons, 1)
    if degrees == math.inf:
        return statistics.NormalDist().inv_cdf(1 - share)
    return _student(share, max(1.0, degrees))


def _student(share: float, n: float) -> float:
    """Returns the value that Student's t with n degrees of freedom exceeds with this probability.

    G. W. Hill, "Algorithm 396: Student's t-quantiles", Communications of the ACM 13 (1970), p. 619.
    From 2 degrees on the tail beyond is the share within 0.1 %, between 1 and 2 within 9 %.
    """
    both = 2 * share
    if n == 1:
        return 1 / math.tan(both * math.pi / 2)
    if n == 2:
        return math.sqrt(2 / (both * (2 - both)) - 2)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * both) ** (2 / n)
    if y > 0.05 + a:  # around the normal quantile
        x = statistics.NormalDist().inv_cdf(share)
        y = x**2
        c += 0.3 * (n - 4.5) * (x + 0.6) if n < 5 else 0.0
        c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        return math.sqrt(n * math.expm1(a * y**2))
    tail = 1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)
    return math.sqrt(n * ((tail * y - 1) * (n + 1) / (n + 2) + 1 / y))


def medians_of_others(values: Sequence[float]) -> list[float]:
    """Returns the median of all others for each of at least two values, with one sort."""
    places = sorted(range(len(values)), key=lambda i: values[i])
    ordered = [values[i] for i in places]
    rest = len(values) - 1
    middle = (rest - 1) // 2, rest // 2
    found = [0.0] * len(values)
    for place, i in enumerate(places):
        low, high = (ordered[k if k < place else k + 1] for k in middle)
        found[i] = (low + high) / 2
    return found


def _references(own: Mapping[Name, float], good: Collection[Name]) -> tuple[list[float], int]:
    """Returns each peer's reference, and the number of values behind that median."""
    known = [value for name, value in own.items() if name in good]
    if len(known) < 2:
        return medians_of_others(list(own.values())), len(own) - 1
    middle = statistics.median(known)
    of_good = iter(medians_of_others(known))
    return [next(of_good) if name in good else middle for name in own], len(known) - 1


def line_of(smallest: float, z: float, spread: float, others: int) -> float:
    """Returns the effect beyond which a peer is named: healthy peers and medians differ, too."""
    return max(LINE * smallest, z * spread * math.hypot(1.0, of_median(others)))


def of_median(count: int) -> float:
    """Returns the standard error of the median of `count` values, in standard deviations."""
    return (1.0 if count < 3 else MEDIAN) / math.sqrt(count)


def deviation(values: Sequence[float], center: float) -> float:
    """Estimates the standard deviation from the median deviation: outliers add nothing to it."""
    return MAD * statistics.median(abs(value - center) for value in values)


def _error(repeats: int, scatter: float, noise: float) -> float:
    """Returns the standard error of a peer's value; a peer that jitters has a larger one."""
    return (max(noise, scatter) if repeats >= _OWN else noise) * of_median(repeats)


def spread_of(deviations: Sequence[float], usual: float) -> float:
    """Estimates the standard deviation of peers beyond `usual`, the noise of their values.

    deviations: the peers' values less their middle. Returns 0 for fewer than `MANY`.
    """
    if len(deviations) < MANY:
        return 0.0
    # One standard deviation more than the noise alone would show: chance is no spread.
    chance = 1 + 1 / math.sqrt(2 * DEGREES_OF_DEVIATION * len(deviations))
    return math.sqrt(max(0.0, deviation(deviations, 0.0) ** 2 - (chance * usual) ** 2))


def with_common_spread(
    found: Sequence[Comparison[Name]], smallest: float, comparisons: int, groups: int = 0
) -> list[Comparison[Name]]:
    """Pools the healthy spread of several figures: few peers show one figure's spread badly.

    A figure whose spread is larger than the others' by more than chance keeps its own. groups: the
    number of groups of peers that are more alike, as a node's ranks are.
    """
    many = len(found[0].peers) if found else 0
    figures = _of_healthy(found, smallest)
    if many < MANY or sum(map(len, figures)) < MANY:
        return list(found)
    common, noise, count = _common(found, figures, groups)
    chance = 1 + _CHANCE / math.sqrt(2 * DEGREES_OF_DEVIATION * many)
    line = line_of(smallest, z_of(comparisons, DEGREES_OF_DEVIATION * count), common, many - 1)
    return [
        one
        if figure and deviation(figure, 0.0) > chance * math.hypot(common, noise)
        else replace(one, line=line, spread=common, visible=one.visible + line - one.line)
        for one, figure in zip(found, figures, strict=True)
    ]


def sure_line(
    found: Sequence[Comparison[Name]], smallest: float, comparisons: int, groups: int = 0
) -> float:
    """Returns the line of the recheck: a peer below it may be healthy. Returns 0 if unknown.
    The recheck's many repeats show the spread of few peers, too."""
    many = len(found[0].peers) if found else 0
    figures = _of_healthy(found, smallest)
    if many < _FEW or sum(len(figure) - 1 for figure in figures) < MANY:
        return 0.0
    common, _, count = _common(found, figures, groups)
    return line_of(smallest, z_of(comparisons, DEGREES_OF_DEVIATION * count), common, many - 1)


def _common(
    found: Sequence[Comparison[Name]], figures: Sequence[Sequence[float]], groups: int
) -> tuple[float, float, int]:
    """Returns the spread, the noise of a peer's value, and the number of deviations used."""
    errors = (
        (one.noise or 0.0) * statistics.median(of_median(peer.repeats) for peer in one.peers)
        for one in found
    )
    noise = statistics.median(errors)
    common = spread_of([each for figure in figures for each in figure], noise)
    if groups > 1:  # the middle of few groups is nearer to them than the true one
        common *= math.sqrt(groups / (groups - 1))
    return common, noise, sum(len(figure) - 1 for figure in figures)


def _of_healthy(found: Sequence[Comparison[Name]], smallest: float) -> list[list[float]]:
    """Returns each figure's deviations from its middle, as logarithms.
    Leaves out peers that are slow in several figures: that is no chance, and widens the spread."""
    slow = Counter(peer.name for one in found for peer in one.peers if peer.lower > LINE * smallest)
    several = {name for name, count in slow.items() if count > 1}
    return [_deviations(one, several) for one in found]


def _deviations(found: Comparison[Name], left_out: Collection[Name]) -> list[float]:
    logs = [math.log(peer.value) for peer in found.peers if peer.name not in left_out]
    center = statistics.median(logs) if logs else 0.0
    return [log - center for log in logs]


@dataclass(frozen=True)
class Arrival:
    """One rank's arrivals, in microseconds.

    median, quantiles (0 %, 5 % ... 100 %): delay behind the first rank of each iteration. own:
    median time between leaving one collective and arriving at the next: only this time is the
    rank's own, since some ranks leave a collective later by its algorithm. spread: median over
    iterations of the last minus the first arrival, with every rank's own time subtracted: the value
    of a machine without a late rank, the same on all ranks. error: error bound of this rank's clock
    offset; n: iterations.
    """

    n: int
    median: float
    own: float
    quantiles: tuple[float, ...]
    spread: float
    error: float


def quantiles_of(ordered: Sequence[float]) -> tuple[float, ...]:
    """Returns the quantiles of ascending values, 0 % to 100 % in steps of 5 %."""
    top = len(ordered) - 1
    return tuple(ordered[round(top * step / _STEPS)] for step in range(_STEPS + 1))


@dataclass(frozen=True)
class Late:
    """A late rank; times in microseconds.

    by: its own time minus the others' median; behind: the same of its delay behind the first rank;
    share: share of iterations in which it is late; line: smallest delay that counts as late;
    spread: healthy spread; others: the others' median own time.
    """

    rank: int
    by: float
    behind: float
    share: float
    line: float
    spread: float
    others: float
    n: int


def late_ranks(arrivals: Mapping[int, Arrival]) -> list[Late]:
    """Returns the late ranks, the latest first. Empty with one rank.

    A late rank spends longer than its peers between collectives, and arrives after them.
    Few iterations give suspicions, which name no rank: how many are needed is the caller's to say.

    Uses medians of arrivals: jitter hardly moves a median, and durations would show the late rank
    as the fastest. Needs both a longer own time and a later arrival: either alone may come from the
    order in which the collective releases its ranks.
    """
    if len(arrivals) < 2:
        return []
    worst_clock = max(a.error for a in arrivals.values())
    found = []
    owns = medians_of_others([a.own for a in arrivals.values()])
    medians = medians_of_others([a.median for a in arrivals.values()])
    for (rank, a), usual, first in zip(arrivals.items(), owns, medians, strict=True):
        own, behind = a.own - usual, a.median - first
        line = LINE * SMALLEST_EFFECT * a.spread
        if own > line and behind > line / 2 + a.error + worst_clock:
            at = a.median - behind + line / 2
            share = 1 - bisect.bisect_right(a.quantiles, at) / len(a.quantiles)
            found.append(Late(rank, own, behind, share, line, a.spread, a.own - own, a.n))
    return sorted(found, key=lambda one: -one.by)


def both_times(first: Mapping[int, Arrival], again: Mapping[int, Arrival]) -> list[Late]:
    """Returns the ranks that were late in both measurements, with the figures of the second."""
    before = {one.rank for one in late_ranks(first)}
    return [one for one in late_ranks(again) if one.rank in before]

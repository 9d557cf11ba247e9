"""Finds ranks that stay late, from the collectives in the records of a running job.

The rule is in oddrank.peers. A rank's own time runs from the last begin or end of any of its
collectives and messages to the next begin: waits in between are not its own time.

If a rank uses a device, only calls count whose time there is known (trace/device_times.py): a host
that waits for its GPU waits for other ranks, too. All ranks leave a call at about the same time, so
the one that came last has spent the shortest time in it, even if clocks differ.
"""

import functools
import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, Row, Who, duration, group_name, grouped
from oddrank.peers import Arrival, Late, both_times, quantiles_of
from oddrank.run.snapshot import Snapshot
from oddrank.trace import collectives, ranks
from oddrank.trace.collectives import Collective, op_name
from oddrank.triage.facts import Group
from oddrank.triage.judges.wait_graph import TOGETHER

FEWEST = 20
"""Fewest collectives that a report compares."""
# A process may be interrupted while it reads its clocks: error bound of the times in a record.
_CLOCK_US = 1000.0
# Ranks do not leave a call at quite the same time, and a device's clock ticks coarsely.
_DEVICE_US = 20.0
# A smaller share of the time from one collective to the next is not worth a sentence.
_LEAST_PART = 0.03

LATE = Row(
    "late-arrival", "late", "{who} is late: it spends {by} more than the others between"
    " collectives, and they wait for it in {share:.0%} of {calls}",
    ("high", "in two reports in a row, and its median is outside the range of the others"),
    ("top -H on its host: which processes use the cores of this rank",
     "oddrank trace where: what it does while the others wait"),
)  # fmt: skip
OF_TWO = replace(
    LATE, sure=("medium", "in two reports in a row, but with only one other rank to compare with")
)

# Groups of one name share no rank: the first rank tells them apart.
_Key: TypeAlias = tuple[str, int]


@dataclass(frozen=True)
class Kind:
    """Collectives that are compared with each other: of one group, with equal operations.

    op: as users call it; "": all of the group whose operation occurs too rarely.
    """

    group: str
    first: int
    """The group's first rank."""
    op: str = ""
    bytes: int = 0
    dtype: str = ""
    ranks: tuple[int, ...] = field(default=(), compare=False)
    """The group's ranks, global."""
    on_device: bool = False


@dataclass(frozen=True)
class Clocks:
    """Wall clocks of the hosts. offsets: microseconds ahead of the judge's clock, error bound."""

    hosts: Mapping[int, str]
    """Rank -> host."""
    offsets: Mapping[str, tuple[float, float]]

    def compare(self, members: Sequence[int]) -> list[tuple[float, float]] | None:
        """Returns each rank's offset and error bound; None if their clocks can't be compared."""
        hosts = [self.hosts.get(rank, "") for rank in members]
        if "" in hosts:
            return None
        if len(set(hosts)) == 1:
            return [(0.0, _CLOCK_US)] * len(hosts)
        if not self.offsets.keys() >= set(hosts):
            return None
        found = (self.offsets[host] for host in hosts)
        return [(offset, error + _CLOCK_US) for offset, error in found]


def clocks_of(snapshot: Snapshot, hosts: Mapping[int, str], own: str) -> Clocks:
    """Returns the offsets of the hosts' clocks from the judge's (`own`: the judge's host).
    Each guard answered within the question's round trip: an offset is known to half of it.
    """
    lows: dict[str, float] = {}
    highs: dict[str, float] = {}
    for rank, work in snapshot.work.items():
        host = hosts.get(rank, "")
        lows[host] = max(lows.get(host, -math.inf), work.seconds - snapshot.answered)
        highs[host] = min(highs.get(host, math.inf), work.seconds - snapshot.asked)
    offsets = {
        host: ((low + highs[host]) / 2 * 1e6, (highs[host] - low) / 2 * 1e6)
        for host, low in lows.items()
        if low <= highs[host]  # else somebody set a clock, or two hosts have one name
    }
    return Clocks(hosts, offsets | {own: (0.0, 0.0)})


def read(snapshot: Snapshot) -> dict[int, list[Collective]]:
    """Returns the newest collectives of each rank that has a record."""
    found = {}
    for rank, name in snapshot.records.items():
        with suppress(OddrankError):  # of another version
            record = (name, snapshot.contents[name])
            found[rank] = [*collectives.read(*record), *collectives.read(*record, timed=True)]
    return found


def findings_of(
    named: Sequence[tuple[Kind, Late]], snapshot: Snapshot, hosts: Mapping[int, str]
) -> list[Finding]:
    """Returns a finding for each rank that is late and never was before."""
    found = []
    for kind, one in named:
        calls = _calls_text(kind, one.n, snapshot.records[one.rank], snapshot.contents)
        clocks = "times that its device was in the calls" if kind.on_device else "wall clocks"
        usual, spread = one.others / 1e3, "healthy spread (median of last minus first)"
        found.append((OF_TWO if len(kind.ranks) == 2 else LATE).found(
            Who("rank", (one.rank,), hosts.get(one.rank) or None),
            Evidence(
                "time from one collective to the next, without what it waits for others",
                f"median of {calls}", usual + one.by / 1e3, "ms", usual,
            ),
            Evidence("arrives after the others by", clocks, one.behind / 1e3, "ms"),
            Evidence(spread, "the same", one.spread / 1e3, "ms"),
            Evidence("smallest delay that counts as late", "twice the spread", one.line / 1e3,
                     "ms"),
            by=duration(one.by / 1e6), share=one.share, calls=calls,
        ))  # fmt: skip
    return found


def _calls_text(kind: Kind, n: int, record: str, contents: Mapping[str, bytes]) -> str:
    """Returns collectives as a sentence names them: 64 all_reduces of default_pg (ranks 0-3).

    record: the name of one of a rank of the group, for its description.
    """
    found, _ = ranks.read([Path(record)], contents=contents)
    texts = [
        group.text
        for rank in found
        for group in rank.groups
        if (group.name, group.ranks) == (kind.group, kind.ranks)
    ]
    group = Group(kind.group, text=texts[0] if texts else "")
    return f"{n} {kind.op or 'collective'}s of {group_name(group.title, kind.ranks)}"


class _Point(NamedTuple):
    """A rank's arrival at a collective."""

    begin: int
    """Wall clock, in nanoseconds."""
    own: float
    """Microseconds since the rank last began or ended anything; NaN: not known. On a device: that
    it spent in calls from the last one of this group on."""
    call: tuple[str, int, str]
    """Operation, bytes, data type."""
    inside: float = 0.0
    """On a device: microseconds that it spent in this call."""


@dataclass
class _Track:
    """A rank's arrivals in a group, by sequence number."""

    members: tuple[int, ...]
    on_device: bool = False
    points: dict[int, _Point] = field(default_factory=dict)


def _tracks_on_device(calls: Sequence[Collective]) -> dict[_Key, _Track]:
    """calls: in the order of issue, messages too. Some were noted a second time meanwhile."""
    found: dict[_Key, _Track] = {}
    last: dict[_Key, tuple[int, float]] = {}
    inside = 0.0
    for each in calls:
        took = ((each.end_ns or 0) - (each.begin_ns or 0)) / 1e3
        inside += took
        if each.seq is None or len(each.ranks) < 2:
            continue
        key = each.group, each.ranks[0]
        number, before = last.get(key, (-1, 0.0))
        last[key] = each.seq, inside
        if _is_together(each.op):
            own = inside - before if number == each.seq - 1 else math.nan
            point = _Point(each.begin_ns or 0, own, (each.op, each.bytes, each.dtype), took)
            found.setdefault(key, _Track(each.ranks, True)).points.setdefault(each.seq, point)
    return found


def _as_arrivals(points: Sequence[Sequence[_Point]], calls: int) -> list[list[_Point]]:
    """Turns times inside a device's calls into arrivals at calls that all ranks leave together.

    Takes the first rank's clock for all ranks. calls: of the group, from the first to the last.
    """
    ends = [point.begin for point in points[0]]
    period = (ends[-1] - ends[0]) / 1e3 / calls
    # From one call to the next it takes as long as they do, at least: many may be issued at once.
    period = max(period, *(statistics.median(p.own for p in of_rank) for of_rank in points))
    return [
        [
            point._replace(begin=end - round(point.inside * 1e3), own=period - point.own)
            for point, end in zip(of_rank, ends, strict=True)
        ]
        for of_rank in points
    ]


@functools.cache
def _is_together(op: str) -> bool:
    """Returns whether no rank gets out before all are in: else no rank waits for a late one."""
    return op_name(op).startswith(TOGETHER)


def _tracks(history: Sequence[Collective]) -> dict[_Key, _Track]:
    """Returns a rank's arrivals by group: those on a device, if some of its work is there."""
    timed = {each for each in history if each.state == "timed"}
    if timed or any(each.state == "issued" for each in history):
        return _tracks_on_device(sorted(timed, key=lambda each: each.begin_ns or 0))
    stamps = sorted(t for c in history for t in (c.begin_ns, c.end_ns) if t is not None)
    found: dict[_Key, _Track] = {}
    for each in history:
        if each.begin_ns is None or each.seq is None or len(each.ranks) < 2:
            continue
        if not _is_together(each.op):
            continue
        before = bisect_left(stamps, each.begin_ns) - 1
        own = (each.begin_ns - stamps[before]) / 1e3 if before >= 0 else math.nan
        track = found.setdefault((each.group, each.ranks[0]), _Track(each.ranks))
        point = _Point(each.begin_ns, own, (each.op, each.bytes, each.dtype))
        track.points.setdefault(each.seq, point)
    return found


def _kinds(every: Mapping[int, Mapping[_Key, _Track]]) -> Iterator[tuple[Kind, list[int]]]:
    """Yields what can be compared, with the numbers of the collectives that all ranks have begun.

    A rank may be late at one of several collectives of a step: each operation is one kind.
    """
    members = {key: track.members for tracks in every.values() for key, track in tracks.items()}
    for key, group in members.items():
        tracks = [every[rank][key] for rank in group if rank in every and key in every[rank]]
        if len(tracks) < len(group) or len({(t.members, t.on_device) for t in tracks}) > 1:
            continue
        on_device = tracks[0].on_device
        common = set.intersection(*(set(t.points) for t in tracks))
        # The oldest one of a record has no predecessor.
        known = [n for n in sorted(common) if not any(math.isnan(t.points[n].own) for t in tracks)]
        by_call = grouped((tracks[0].points[number].call, number) for number in known)
        rest = []
        for (op, size, dtype), numbers in by_call.items():
            if len(numbers) >= FEWEST:
                yield Kind(*key, op_name(op), size, dtype, group, on_device), numbers
            else:
                rest += numbers
        if len(rest) >= FEWEST:
            yield Kind(*key, ranks=group, on_device=on_device), sorted(rest)


def _arrivals(
    points: Sequence[Sequence[_Point]], clocks: Sequence[tuple[float, float]]
) -> Iterator[Arrival]:
    """Compares arrivals at the same collectives. points, clocks: of each rank of a group."""
    base = points[0][0].begin
    came = [
        [(point.begin - base) / 1e3 - offset for point in of_rank]
        for of_rank, (offset, _) in zip(points, clocks, strict=True)
    ]
    owns = [statistics.median(point.own for point in of_rank) for of_rank in points]
    first = [min(times) for times in zip(*came, strict=True)]
    levelled = [[at - own for at in times] for times, own in zip(came, owns, strict=True)]
    spread = statistics.median(max(times) - min(times) for times in zip(*levelled, strict=True))
    for times, own, (_, error) in zip(came, owns, clocks, strict=True):
        behind = sorted(at - earliest for at, earliest in zip(times, first, strict=True))
        middle = statistics.median(behind)
        yield Arrival(len(behind), middle, own, quantiles_of(behind), spread, error)


class Lateness:
    """A job's late ranks, from one report to the next."""

    def __init__(self) -> None:
        self._before: dict[Kind, dict[int, Arrival]] = {}
        self._last: dict[Kind, int] = {}
        """The number of the last collective that was compared: none counts twice."""
        self._named: set[int] = set()
        self.by: dict[int, float] = {}
        """Ranks that were late in the last two reports that judge them -> seconds."""

    def look(
        self, histories: Mapping[int, Sequence[Collective]], clocks: Clocks
    ) -> list[tuple[Kind, Late]]:
        """Compares the arrivals of a report. Returns ranks that are newly late, the latest first.

        histories: the newest collectives of each rank.
        """
        every = {rank: _tracks(history) for rank, history in histories.items()}
        kinds = dict(_kinds(every))
        self._before = {kind: a for kind, a in self._before.items() if kind in kinds}
        self._last = {kind: n for kind, n in self._last.items() if kind in kinds}
        judged: set[int] = set()
        stays: dict[int, tuple[Kind, Late]] = {}
        for kind, numbers in kinds.items():
            if numbers[-1] < self._last.get(kind, 0):  # a new group of the same name
                del self._last[kind], self._before[kind]
            new = [number for number in numbers if number > self._last.get(kind, -1)]
            of_clocks = clocks.compare(kind.ranks)
            if kind.on_device:
                of_clocks = [(0.0, _DEVICE_US)] * len(kind.ranks)
            if len(new) < FEWEST or of_clocks is None:
                continue
            tracks = [every[rank][kind.group, kind.first] for rank in kind.ranks]
            points = [[track.points[number] for number in new] for track in tracks]
            begins = [point.begin / 1e3 for point in points[0]]
            if kind.on_device:
                points = _as_arrivals(points, new[-1] - new[0])
            now = dict(zip(kind.ranks, _arrivals(points, of_clocks), strict=True))
            least = _LEAST_PART * statistics.median(b - a for a, b in itertools.pairwise(begins))
            judged |= set(kind.ranks)
            for one in both_times(self._before.get(kind, {}), now):
                if one.by >= max(least, stays[one.rank][1].by if one.rank in stays else 0.0):
                    stays[one.rank] = kind, one
            self._before[kind], self._last[kind] = now, new[-1]
        new_ones = [found for rank, found in stays.items() if rank not in self._named]
        self._named |= stays.keys()
        kept = {rank: by for rank, by in self.by.items() if rank not in judged}
        self.by = kept | {rank: one.by / 1e6 for rank, (_, one) in stays.items()}
        return sorted(new_ones, key=lambda found: -found[1].by)

"""The facts that ranks are compared by: how one is read, and what a difference in it means."""

import json
import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oddrank.control.stages import RunState
from oddrank.launch import Launch
from oddrank.machine.device import GpuFacts
from oddrank.peers import Majority, majority

# Neither healthy nor a fault: shown, never compared.
NOT_READABLE = "not readable"
_MOST_TEXT = 200
_MOST_ENTRIES = 128


@dataclass(frozen=True)
class Here:
    """The sources of facts, besides the kernel's files.

    master: rank 0's address, "" if all ranks share a host. gpus: this rank's machine.device.facts.
    """

    launch: Launch
    torch: Any
    master: str
    gpus: GpuFacts


class Facts(GpuFacts, total=False):
    """A rank's facts that code reads by name, beside all others of the table.

    Each may also be NOT_READABLE.
    """

    visible_gpus: str | None
    gpu_uuid: str | None
    gpu_bus: str | None
    gpu_numa: int | str | None
    numa: dict[str, str] | str
    nofile: str
    shm_free: int | str
    shm_writable: bool | str
    nccl_interfaces: str | None


@dataclass(frozen=True)
class Fact:
    """A row of the table.

    read: returns a text, a number, None (there is none) or a flat mapping of these, whose entries
    are compared one by one. differs: what a difference means: it breaks jobs, is odd, or is fine
    and only shown. near: numbers within this share of the median are alike. breaking, free: a
    mapping's entries that break jobs, and those that are only shown.
    """

    name: str
    read: Callable[[Here], Any]
    differs: Literal["breaks", "odd", "fine"]
    near: float = 0.0
    breaking: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()

    def value(self, here: Here) -> Any:
        """Reads the fact. An error must not cost the rank its other facts."""
        try:
            return _cut(self.read(here))
        except FileNotFoundError:
            return None
        except Exception:
            return NOT_READABLE

    def breaks(self, entry: str = "") -> bool:
        return self.differs == "breaks" or entry in self.breaking


def _cut(value: Any) -> Any:
    """Limits the lengths of texts and mappings: strangers may have written them."""
    if isinstance(value, str):
        return value[:_MOST_TEXT]
    if isinstance(value, Mapping):
        return {str(key): _cut(value[key]) for key in sorted(value)[:_MOST_ENTRIES]}
    return value


def results(run: RunState) -> Mapping[int, Facts]:
    return run.of("environment")


_MOST = 2 / 3
# From three of four on: beyond doubt.
_NEARLY_ALL = 3 / 4
_ROUNDING = 1e-9

# A value, and the ranks that have it.
Group = tuple[Any, tuple[int, ...]]


@dataclass(frozen=True)
class Difference:
    """A fact in which ranks differ. voters: nodes, or ranks of a single node."""

    name: str
    breaks: bool
    most: Majority[int, Hashable]
    voters: Literal["nodes", "ranks"]

    @property
    def groups(self) -> tuple[Group, ...]:
        """Each value with its ranks; by votes, the most first."""
        return self.most.groups

    @property
    def common(self) -> Group | None:
        """The value of most ranks, and those ranks."""
        return self.groups[0] if self.most.is_enough else None

    @property
    def share(self) -> float:
        """The first value's share of the votes."""
        return self.most.count / self.most.votes

    @property
    def is_clear(self) -> bool:
        return self.share > _NEARLY_ALL - _ROUNDING


def compare(
    table: Iterable[Fact], ranks: Mapping[int, Mapping[str, object]], nodes: Sequence[Sequence[int]]
) -> list[Difference]:
    """Returns the facts that differ. ranks: rank -> its facts. Values not readable have no vote."""
    votes = {rank: 1 / len(node) if len(nodes) > 1 else 1.0 for node in nodes for rank in node}
    voters: Literal["nodes", "ranks"] = "nodes" if len(nodes) > 1 else "ranks"
    found = []
    for fact in table:
        if fact.differs != "fine":
            seen = {rank: facts.get(fact.name, NOT_READABLE) for rank, facts in ranks.items()}
            for name, breaks, values in _entries(fact, seen):
                alike = _near(values, fact.near) if fact.near else values
                most = majority(dict(sorted(alike.items())), least=_MOST - _ROUNDING, weights=votes)
                if most.deviants:
                    found.append(Difference(name, breaks, most, voters))
    return found


def group(values: Mapping[int, Any]) -> list[Group]:
    """Returns each value with its ranks, in the order of `values`."""
    groups: dict[Hashable, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(_plain(value), []).append(rank)
    return [(values[who[0]], tuple(sorted(who))) for who in groups.values()]


def not_readable(ranks: Mapping[int, Mapping[str, object]]) -> dict[str, list[int]]:
    """Returns fact -> the ranks that could not read it."""
    found: dict[str, list[int]] = {}
    for rank, facts in ranks.items():
        for name, value in facts.items():
            if value == NOT_READABLE:
                found.setdefault(name, []).append(rank)
    return found


def _entries(
    fact: Fact, seen: Mapping[int, Any]
) -> Iterator[tuple[str, bool, Mapping[int, Hashable]]]:
    """Yields (name, breaks, values) of a fact that differs, or of each entry of a mapping."""
    known = {rank: value for rank, value in seen.items() if value != NOT_READABLE}
    first = next(iter(known.values()), None)
    if all(value == first for value in known.values()):
        return
    if not any(isinstance(value, Mapping) for value in known.values()):
        yield fact.name, fact.breaks(), {rank: _plain(value) for rank, value in known.items()}
        return
    mappings = {rank: v if isinstance(v, Mapping) else {} for rank, v in known.items()}
    for entry in sorted({entry for value in mappings.values() for entry in value} - fact.free):
        values = {rank: _plain(value.get(entry)) for rank, value in mappings.items()}
        yield f"{fact.name}.{entry}", fact.breaks(entry), values


def _plain(value: Any) -> Hashable:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, sort_keys=True)


def _near(values: Mapping[int, Hashable], near: float) -> Mapping[int, Hashable]:
    """Returns the values with numbers near their median replaced by it."""
    known = [value for value in values.values() if isinstance(value, int | float)]
    middle = statistics.median_low(known) if known else 0
    return {
        rank: middle
        if isinstance(value, int | float) and abs(value - middle) <= near * abs(middle)
        else value
        for rank, value in values.items()
    }


def shared_gpus(
    ranks: Mapping[int, Facts], nodes: Sequence[Sequence[int]]
) -> Iterator[tuple[str, list[int]]]:
    """Yields GPUs that several ranks of a node would take, with these ranks.

    Yields none if on every node all ranks share one GPU: a trial on a machine with one GPU.
    """
    users: list[dict[str, list[int]]] = []
    for node in nodes:
        users.append({})
        for rank in node:
            gpu = ranks[rank].get("gpu_uuid") if rank in ranks else None
            if isinstance(gpu, str) and gpu != NOT_READABLE:
                users[-1].setdefault(gpu, []).append(rank)
    if all(len(gpus) <= 1 < len(node) for gpus, node in zip(users, nodes, strict=True)):
        return
    for gpus in users:
        yield from ((gpu, those) for gpu, those in gpus.items() if len(those) > 1)

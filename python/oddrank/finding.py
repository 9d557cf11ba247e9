"""Findings as data: the subject, the fault, and the evidence."""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Kind = Literal["rank", "gpu", "link", "node", "file", "line", "process"]
Level = Literal["high", "medium", "low"]
Condition = Literal[
    "stuck", "slow", "late", "broken", "dead",
    "missing", "different", "mismatch", "suspicious", "unknown",
]  # fmt: skip


@dataclass(frozen=True)
class Who:
    """The subject of a finding. Sentences use its `str()`: rank 3 (node1, GPU 1)."""

    kind: Kind
    ranks: tuple[int, ...] = ()
    host: str | None = None
    device: str | None = None

    @property
    def is_or_are(self) -> str:
        """The verb for this subject: `are` for several ranks or GPUs, else `is`."""
        return "are" if self.kind in ("rank", "gpu") and len(set(self.ranks)) > 1 else "is"

    def __str__(self) -> str:
        place = ", ".join(part for part in (self.host, self.device) if part)
        ranks = ranks_text(self.ranks)
        name, detail = (ranks, place) if self.kind in ("rank", "gpu") else (self.kind, ranks)
        if self.kind == "process":  # only its pid is known, and `device` holds it
            known = str(self.device)
            return f"{known} ({self.host})".replace(") (", ", ") if self.host else known
        if not self.ranks:
            return f"{self.kind} {place}".rstrip()
        if name == self.kind and place:
            name = f"{name} {place}"
        return f"{name} ({detail})" if detail else name


@dataclass(frozen=True)
class Evidence:
    """One observation and its source. A value has its unit, the peers' median and spread."""

    text: str
    source: str
    value: float | None = None
    unit: str | None = None
    median: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class Confidence:
    """How sure a finding is, and why."""

    level: Level
    why: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault. `what` is a whole sentence with the name in it.

    By default it names no rank: the rank at fault is unknown.
    """

    condition: Condition = "unknown"
    who: Who = Who("rank")
    cause: str
    what: str
    stage: str | None = None
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence
    next: tuple[str, ...] = ()
    drains_node: bool = False
    """Whether a scheduler should leave out the named nodes. Only for faults of a node or its
    devices: not of software, settings or a link, nor where another rank may be the cause."""

    def names_somebody(self) -> bool:
        """Returns whether it makes the verdict odd. Low confidence only shows a suspect."""
        return self.condition != "unknown" and self.confidence.level != "low"

    def as_json(self) -> dict[str, Any]:
        """Returns the fields of report.schema.json."""
        fields = asdict(self)
        del fields["drains_node"]
        return fields


@dataclass(frozen=True)
class Row:
    """A row of a command's table of causes: all texts of its findings.

    Texts name {who}, {be} (is or are), and further keywords of `found`.
    """

    cause: str
    condition: Condition
    what: str
    sure: tuple[Level, str]
    """How sure, and why."""
    next: tuple[str, ...] = ()
    drains_node: bool = False

    def found(self, who: Who = Who("rank"), /, *evidence: Evidence, **told: object) -> Finding:
        """Makes a finding from the row, with a stage if one is given."""
        told |= {"who": who, "be": who.is_or_are}
        level, why = self.sure
        return Finding(
            condition=self.condition,
            who=who,
            cause=self.cause,
            what=self.what.format_map(told),
            stage=str(told["stage"]) if told.get("stage") else None,
            evidence=evidence,
            confidence=Confidence(level, why.format_map(told)),
            next=tuple(step.format_map(told) for step in self.next),
            drains_node=self.drains_node,
        )


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Returns each key with all of its values; both in their original order."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def some(names: Sequence[object], most: int) -> str:
    """Returns the first names for a sentence: a, b and 3 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def ranks_text(ranks: Iterable[int]) -> str:
    """Returns ranks as sentences name them: `rank 3`, `ranks 0-5, 7`."""
    ranks = set(ranks)
    return f"rank{'s' if len(ranks) > 1 else ''} {fold(ranks, ', ')}"


def fold(ranks: Iterable[int], between: str = ",") -> str:
    """Returns ranks as ranges, each once and in order: `0-5,7`, for files and programs."""
    ranges: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    return between.join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def group_name(title: str, ranks: Collection[int] = ()) -> str:
    """Returns a process group as all commands name it: default_pg (ranks 0-3), group 7."""
    folded = fold(ranks, ", ")
    members = f" (ranks {folded})" if ranks and len(folded) <= 40 else ""
    return (title if title and not title.isdecimal() else f"group {title}".strip()) + members


_TIMES = (("us", 1e-6, 1e-3), ("ms", 1e-3, 1), ("s", 1, 120), ("min", 60, 7200),
          ("h", 3600, 2 * 86400), ("days", 86400, float("inf")))  # fmt: skip


def counted(count: float, what: str, plural: str = "s") -> str:
    """Words a number of things: "1 rank", "2 ranks"."""
    return f"{count:.0f} {what}{'' if count == 1 else plural}"


def duration(seconds: float, digits: int | None = None) -> str:
    """Returns a time in a readable unit, with three digits: 85 us, 1.25 ms, 95.1 s, 3.5 h, 4 days.

    digits: decimals of seconds below two minutes, for texts that change as one waits.
    """
    if seconds <= 0 or (digits is not None and seconds < 120):
        return f"{max(seconds, 0.0):.{digits or 0}f} s"
    unit, size = next((unit, size) for unit, size, most in _TIMES if seconds < most)
    return f"{number_text(seconds / size, 3)} {unit}"


def size_text(size: float, *, exact: bool = False) -> str:
    """Returns bytes with three digits: 8 B, 1.5 MiB. exact: in the largest unit that is whole."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB" or (exact and size % 1024):
            break
        size /= 1024
    return f"{size:.0f} {unit}" if exact else f"{number_text(size, 3)} {unit}"


def number_text(value: float, digits: int = 4) -> str:
    """Returns a number with `digits` significant digits, without an exponent if it is large."""
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e15 else f"{value:.{digits}g}"

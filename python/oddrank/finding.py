"""What was found, as data: findings, the verdict and exit code, the JSON. Words are render.py's."""

import json
import math
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from oddrank._version import __version__
from oddrank.errors import OddrankError

SCHEMA = "oddrank.report/1"
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")

Kind = Literal["rank", "gpu", "link", "node", "file", "line"]
Level = Literal["high", "medium", "low"]
Verdict = Literal["healthy", "odd", "unknown", "incomplete"]
Condition = Literal[
    "stuck", "slow", "late", "broken", "dead",
    "missing", "different", "mismatch", "suspicious", "unknown",
]  # fmt: skip

# How bad it is; what is as bad as another keeps the order in which it was found.
_BADNESS: dict[Condition, int] = {
    "dead": 0, "missing": 0, "stuck": 0, "broken": 0, "mismatch": 0,
    "slow": 1, "late": 1, "different": 2, "suspicious": 3, "unknown": 4,
}  # fmt: skip
# Verdict -> exit code; 2 is "could not run" and belongs to OddrankError.
EXIT_CODES: dict[Verdict, int] = {"healthy": 0, "odd": 1, "unknown": 1, "incomplete": 3}
FAILING: frozenset[str] = frozenset(EXIT_CODES) - {"healthy"}
_FAST = json.JSONEncoder(allow_nan=False, check_circular=False)
# A longer list has each of its entries on one line of the JSON.
_MOST_OPEN = 16
JSON_ADVICE = "give --json a file in a folder you can write, or -"


@dataclass(frozen=True)
class Who:
    """Whom a finding names; `str()` of it stands in sentences: rank 3 (node1, GPU 1)."""

    kind: Kind
    ranks: tuple[int, ...] = ()
    host: str | None = None
    device: str | None = None

    def __str__(self) -> str:
        place = ", ".join(part for part in (self.host, self.device) if part)
        ranks = f"rank{'s' if len(set(self.ranks)) > 1 else ''} {fold(self.ranks)}"
        name, detail = (ranks, place) if self.kind in ("rank", "gpu") else (self.kind, ranks)
        if not self.ranks:
            return f"{self.kind} {place}".rstrip()
        if name == self.kind and place:
            name = f"{name} {place}"
        return f"{name} ({detail})" if detail else name


@dataclass(frozen=True)
class Evidence:
    """One observation and where it was read; a value has its unit, the peers' median and spread."""

    text: str
    source: str
    value: float | None = None
    unit: str | None = None
    median: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class Confidence:
    """How sure, and why."""

    level: Level
    why: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong with somebody. `what` is a whole sentence, the name included."""

    condition: Condition
    who: Who
    cause: str
    what: str
    stage: str | None = None
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence
    next: tuple[str, ...] = ()

    def names_somebody(self) -> bool:
        return self.condition != "unknown"


@dataclass(frozen=True)
class Report:
    """A tool's answer. Make it with `Report.of`, which derives verdict and summary."""

    tool: str
    world: Mapping[str, Any]
    data: Mapping[str, Any]
    findings: tuple[Finding, ...]
    verdict: Verdict
    summary: str
    why: str = field(default="", compare=False)
    raised: tuple[int, ...] = field(default=(), compare=False)
    """Ranks with an exception of their own, which may be a consequence of what is named."""

    @staticmethod
    def of(
        tool: str,
        world: Mapping[str, Any],
        data: Mapping[str, Any],
        findings: Iterable[Finding],
        *,
        complete: bool,
        why: str = "",
        raised: Iterable[int] = (),
    ) -> "Report":
        """The report, surest names first, of these the worst, otherwise in the order given.

        complete: everything was measured before the deadline. why: a sentence on what was not, or
        on what was; it is the summary where there is no finding. raised: see `Report.raised`.
        Somebody named is odd, deadline or not; nobody named is incomplete after a deadline, and
        unknown where a finding says so.
        """
        ordered = tuple(sorted(findings, key=_weight))
        verdict: Verdict
        if any(finding.names_somebody() for finding in ordered):
            verdict = "odd"
        elif not complete:
            verdict = "incomplete"
        else:
            verdict = "unknown" if ordered else "healthy"
        summary = _summary(verdict, world, ordered, why)
        return Report(tool, world, data, ordered, verdict, summary, why, tuple(raised))

    def envelope(self) -> dict[str, Any]:
        """The JSON of report.schema.json."""
        return {
            **envelope(self.tool, self.world, self.data),
            "verdict": self.verdict,
            "summary": self.summary,
            "findings": [asdict(finding) for finding in self.findings],
        }

    def exit_code(self, fail_on: frozenset[str] = FAILING) -> int:
        return exit_code(self.verdict, fail_on)


def exit_code(verdict: Verdict, fail_on: frozenset[str] = FAILING) -> int:
    """0 healthy, 1 named or unknown, 3 deadline and nobody named; 0 if not in `fail_on`."""
    return EXIT_CODES[verdict] if verdict in fail_on else 0


def envelope(tool: str, world: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of a command that shows and does not judge."""
    return {
        "schema": SCHEMA,
        "tool": tool,
        "version": __version__,
        "world": dict(world),
        "data": dict(data),
    }


def fold(ranks: Iterable[int]) -> str:
    """Ranks as ranges, each once and in order: `0-5,7`."""
    ranges: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def check_writable(path: str, advice: str = JSON_ADVICE) -> None:
    """OddrankError if `write_json` could not write there: asked before a command runs."""
    if path != "-":
        target = _target(path)
        if _is_special(target):
            if not os.access(target, os.W_OK):
                raise _unwritable(path, "no permission", advice)
            return
        temporary = _open_beside(path, target, advice)
        os.close(temporary[0])
        os.unlink(temporary[1])


def write_json(envelope: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes to `-` (stdout) or, whole or not at all, to a file. NaN and infinities become null."""
    write_text("".join(_pieces(envelope, "\n")) + "\n", path, JSON_ADVICE)


def write_text(text: str, path: str | os.PathLike[str], advice: str) -> None:
    """Writes to `-` (stdout) or, whole or not at all, to a file; OddrankError as whole_file's."""
    path = os.fspath(path)
    encoded = text.encode("utf-8", "backslashreplace")
    if path == "-":
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable("stdout", error.strerror, advice) from error
        return
    target = _target(path)
    try:
        if _is_special(target):  # a pipe or /dev/null: nothing to replace
            # Without a reader a pipe would keep us here: an error then.
            descriptor = os.open(target, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(descriptor, True)
            with open(descriptor, "wb") as stream:
                stream.write(encoded)
            return
    except OSError as error:
        raise _unwritable(path, error.strerror, advice) from error
    with whole_file(path, advice) as file:
        file.write(encoded)


@contextmanager
def whole_file(path: str | os.PathLike[str], advice: str) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `path` at the end: whole, or not at all.

    OddrankError, which ends with `advice`, where it can't be written or is no regular file.
    """
    path = os.fspath(path)
    target = _target(path)
    if _is_special(target):
        raise _unwritable(path, "it is no regular file", advice)
    descriptor, temporary = _open_beside(path, target, advice)
    try:
        with open(descriptor, "wb") as file:
            yield file
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise _unwritable(path, error.strerror, advice) from error
        raise


def _weight(finding: Finding) -> tuple[bool, bool, int, int]:
    return (
        not finding.names_somebody(),
        finding.condition == "suspicious",
        ("high", "medium", "low").index(finding.confidence.level),
        _BADNESS[finding.condition],
    )


def _summary(
    verdict: Verdict, world: Mapping[str, Any], findings: tuple[Finding, ...], why: str
) -> str:
    if findings:
        same = len(findings) - 1
        more = f" (and {same} more finding{'s' if same > 1 else ''})" if same else ""
        return findings[0].what + more
    if why:
        return why
    if verdict == "incomplete":
        return "the deadline came before all results, and nothing points at anybody"
    size = world.get("size")
    if not isinstance(size, int):
        return "nothing found"
    return "1 rank is healthy" if size == 1 else f"all {size} ranks are healthy"


def _pieces(value: Any, line: str) -> Iterator[str]:
    """JSON: an entry of a mapping a line, also a row of a long list, each by the fast encoder.

    line: the end of a line and the blanks that the next one begins with.
    """
    inner = line + " "
    if isinstance(value, Mapping) and value:
        start = "{"
        for key, item in value.items():
            yield f"{start}{inner}{json.dumps(str(key))}: "
            yield from _pieces(item, inner)
            start = ","
        yield line + "}"
    elif isinstance(value, list | tuple) and any(isinstance(v, dict | list) for v in value):
        start = "["
        for item in value:
            yield start + inner
            yield from [_encoded(item)] if len(value) > _MOST_OPEN else _pieces(item, inner)
            start = ","
        yield line + "]"
    else:
        yield _encoded(value)


def _encoded(value: Any) -> str:
    """On one line; in Python only where the fast encoder fails: NaN, numpy's numbers."""
    try:
        return _FAST.encode(value)
    except (TypeError, ValueError):
        return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    """What JSON can hold: it has no NaN, and a report must not fail on its own numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int):
        return value
    return _plain(value.item()) if hasattr(value, "item") else str(value)  # item: numpy, torch


def _target(path: str) -> Path:
    return Path(os.path.realpath(path))


def _is_special(target: Path) -> bool:
    try:
        return not (stat.S_ISREG(os.stat(target).st_mode) or target.is_dir())
    except OSError:
        return False


def _open_beside(path: str, target: Path, advice: str = JSON_ADVICE) -> tuple[int, str]:
    """A new file in the target's folder, its mode from the umask (mkstemp's would be 0600)."""
    temporary = f"{target}.{os.urandom(6).hex()}.tmp"
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), temporary
    except OSError as error:
        raise _unwritable(path, error.strerror, advice) from error


def _unwritable(path: str, reason: str | None, advice: str = JSON_ADVICE) -> OddrankError:
    return OddrankError(f"cannot write {path}: {reason}; {advice}")

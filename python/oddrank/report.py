"""A command's answer, as data: findings, verdict, exit code, and the JSON of --json."""

import json
import math
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from oddrank._version import __version__
from oddrank.errors import OddrankError
from oddrank.finding import Condition, Finding, counted

SCHEMA = "oddrank.report/1"
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")

Verdict = Literal["healthy", "odd", "unknown", "incomplete"]

# How bad a condition is, 0 the worst. Equally bad findings keep their order.
_BADNESS: dict[Condition, int] = {
    "dead": 0, "missing": 0, "stuck": 0, "broken": 0, "mismatch": 0,
    "slow": 1, "late": 1, "different": 2, "suspicious": 3, "unknown": 4,
}  # fmt: skip
# Verdict -> exit code; 2 is "could not run" and belongs to OddrankError.
EXIT_CODES: dict[Verdict, int] = {"healthy": 0, "odd": 1, "unknown": 1, "incomplete": 3}
FAILING: frozenset[str] = frozenset(EXIT_CODES) - {"healthy"}
_FAST = json.JSONEncoder(allow_nan=False, check_circular=False)
# In longer lists of the JSON each entry takes one line.
_MOST_OPEN = 16
JSON_ADVICE = "give --json a file in a folder you can write, or -"


@dataclass(frozen=True)
class Report:
    """A command's answer. `Report.of` makes it and derives verdict and summary.

    Example: oddrank.Report.of(name, {"size": 4}, {}, findings, complete=True).exit_code()
    """

    tool: str
    world: Mapping[str, Any]
    data: Mapping[str, Any]
    findings: tuple[Finding, ...]
    verdict: Verdict
    summary: str
    why: str = field(default="", compare=False)
    raised: tuple[int, ...] = field(default=(), compare=False)
    """Ranks that raised an exception, perhaps as a consequence of a finding."""

    @staticmethod
    def of(
        tool: str, world: Mapping[str, Any], data: Mapping[str, Any], findings: Iterable[Finding],
        *, complete: bool, why: str = "", raised: Iterable[int] = (),
    ) -> "Report":  # fmt: skip
        """Makes a report: the surest names first, then the worst, then in the order given.

        complete: everything was measured before the deadline. why: a sentence on the measurements,
        done or not; the summary if there are no findings. raised: see `Report.raised`.
        The verdict is odd if a finding names a subject; else incomplete if not `complete`; else
        unknown if there are findings; else healthy.
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

    @property
    def surest(self) -> Finding | None:
        """The surest finding that names somebody."""
        return next((finding for finding in self.findings if finding.names_somebody()), None)

    def envelope(self) -> dict[str, Any]:
        """Returns the JSON of report.schema.json."""
        return {
            **envelope(self.tool, self.world, self.data),
            "verdict": self.verdict,
            "summary": self.summary,
            "findings": [finding.as_json() for finding in self.findings],
        }

    def exit_code(self, fail_on: frozenset[str] = FAILING) -> int:
        return exit_code(self.verdict, fail_on)


def exit_code(verdict: Verdict, fail_on: frozenset[str] = FAILING) -> int:
    """Returns 0 healthy, 1 odd or unknown, 3 incomplete; 0 for a verdict not in `fail_on`."""
    return EXIT_CODES[verdict] if verdict in fail_on else 0


def envelope(tool: str, world: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON of a command that does not judge."""
    return {
        "schema": SCHEMA,
        "tool": tool,
        "version": __version__,
        "world": dict(world),
        "data": dict(data),
    }


def check_writable(path: str, advice: str = JSON_ADVICE, *, folder: bool = False) -> None:
    """Raises OddrankError if `write_json` could not write there. Called before a command runs.
    folder: checks that files can be written to a folder, which need not exist yet."""
    if path != "-":
        target = _target(path)
        if folder:
            while not os.path.exists(target):
                target = target.parent
            target /= "oddrank"
        elif _is_special(target):
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
            # O_NONBLOCK: without a reader, opening a pipe fails instead of waiting.
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
    """Opens a file that replaces `path` at the end: whole, or not at all.

    OddrankError, which ends with `advice`, if it can't be written or is no regular file.
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
        more = f" (and {counted(same, 'more finding')})" if same else ""
        return findings[0].what + more
    if why:
        return why
    if verdict == "incomplete":
        return "the deadline came before all results, and no rank can be named"
    size = world.get("size")
    if not isinstance(size, int):
        return "nothing found"
    return "1 rank is healthy" if size == 1 else f"all {size} ranks are healthy"


def _pieces(value: Any, line: str) -> Iterator[str]:
    """Yields JSON with a line for each entry of a mapping and each row of a long list.

    line: a line's end and the indentation of the next one.
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
    """Encodes on one line. Replaces NaN and numpy's numbers, which the fast encoder refuses."""
    try:
        return _FAST.encode(value)
    except (TypeError, ValueError):
        return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    """Replaces values that JSON can't hold: NaN becomes null, numpy's numbers become numbers."""
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
    """Opens a new file in the target's folder, with the umask's mode (mkstemp's is 0600)."""
    temporary = f"{target}.{os.urandom(6).hex()}.tmp"
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), temporary
    except OSError as error:
        raise _unwritable(path, error.strerror, advice) from error


def _unwritable(path: str, reason: str | None, advice: str = JSON_ADVICE) -> OddrankError:
    return OddrankError(f"cannot write {path}: {reason}; {advice}")

"""Removes tools' envelopes around lines of a log: a row for each, known by many lines' shape.

Envelopes may be nested: the rest is checked again. A line keeps its number, unless one line of JSON
holds several. Lines that a terminal cut are joined.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from oddrank.inputs import unix_time

_MOST_LOOKED_AT = 200
_MOST_LEFT = 0.2  # share of the checked lines that may not fit
_MOST_WHOLE = 256 << 20  # bytes of a file that is one JSON text
_MOST_PODS = 4096

Peel = Callable[[bytes], bytes | None]
"""Returns a line, which has no newline, without its envelope; None if it does not fit."""


@dataclass(frozen=True)
class Envelope:
    """An envelope. lines: yields a file's lines without it, and counts lines that do not fit."""

    name: str
    lines: Callable[[Path, list[int]], Iterator[bytes]]


def found(head: bytes) -> Envelope | None:
    """Returns the envelope of a file that begins so; None if there is none."""
    if head.lstrip()[:1] in b'{["':
        for envelope, tells in _WHOLE:
            if tells.search(head):
                return envelope
    lines = head.split(b"\n")[: _MOST_LOOKED_AT + 1]
    if len(lines) > 1:
        lines.pop()  # perhaps not whole
    if _width(head[:_HEAD_OF_TEXT].decode(errors="replace")):
        return _BY_WIDTH
    told = (line.rstrip(b"\r") for line in lines if line.strip())
    first_two = list(itertools.islice(told, 2))
    tried = [row for row in _BY_LINE if any(map(row[2].match, first_two))]
    lines = [*first_two, *told] if tried else []
    fitting = (Envelope(name, partial(_peeled, make)) for name, make, _ in tried
               if _fits(name, make(), lines))  # fmt: skip
    return next(fitting, None)


def _read_by(read: Callable[[bytes], str | None]) -> Callable[[Path, list[int]], Iterator[bytes]]:
    """Returns the reader of a whole file's text."""

    def lines(path: Path, left: list[int]) -> Iterator[bytes]:
        text = None
        if path.stat().st_size <= _MOST_WHOLE:
            with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
                text = read(path.read_bytes())
        left[0] += text is None
        yield (text or "").encode(errors="replace")

    return lines


def _peeled(make: Callable[[], Peel], path: Path, left: list[int]) -> Iterator[bytes]:
    """Yields lines; lines that do not fit stay unchanged."""
    peel = make()
    with path.open("rb") as file:
        for line in file:
            bare = line.rstrip(b"\r\n")
            inner = peel(bare)
            left[0] += inner is None and bool(bare.strip())
            yield (bare if inner is None else inner) + b"\n"


def _fits(name: str, peel: Peel, lines: list[bytes]) -> bool:
    """Returns whether nearly all lines fit, and not all begin with a blank behind a number.

    `srun --label` writes a blank behind a task's number; lines that grep found keep theirs.
    """
    fitting = [inner for line in lines if (inner := peel(line)) is not None]
    most_left = 0 if name == "an indent" else _MOST_LEFT * len(lines)
    if not fitting or len(lines) - len(fitting) > most_left:
        return False
    if name.startswith("grep"):
        blanks = {len(line) - len(line.lstrip(b" ")) for line in fitting if line.strip()}
        return len(fitting) > 1 and (0 in blanks or 1 not in blanks)
    return len(fitting) > 1 or name == "JSON lines"


def _cut(pattern: str) -> Callable[[], Peel]:
    """Cuts off a pattern's match; its group `pod` stays as `kubectl` writes it.
    Its group `number` grows from line to line (of each file)."""
    shape = re.compile(pattern.encode())

    def make() -> Peel:
        pods: set[bytes] = set()
        last: dict[bytes, int] = {}

        def peel(line: bytes) -> bytes | None:
            match = shape.match(line)
            if match is None:
                return b"" if line == b"--" and "number" in shape.groupindex else None
            kept, rest = match.groupdict(), line[match.end() :]
            if pod := kept.get("pod"):
                pods.add(pod)
                return b"[pod/%s/_] %s" % (pod, rest) if len(pods) <= _MOST_PODS else None
            if number := kept.get("number"):
                file = kept.get("file", b"")
                if int(number) <= last.get(file, -1):
                    return None
                last[file] = int(number)
            return (kept.get("stamp") or b"") + kept.get("text", rest)

        return peel

    return make


def _indented() -> Peel:
    """Removes the first line's indent if all lines have it."""
    blanks: list[bytes] = []

    def peel(line: bytes) -> bytes | None:
        if not line.strip():
            return b""
        if not blanks:
            blanks.append(line[: len(line) - len(line.lstrip(b" \t"))])
        return line[len(blanks[0]) :] if blanks[0] and line.startswith(blanks[0]) else None

    return peel


# Keys of JSON that hold a log's text, its time and its pod; the first of them counts.
_TEXT = ("textPayload", "MESSAGE", "@message", "message", "line", "msg", "log", "body", "content")
_NESTED = ("jsonPayload", "_source", "fields", "json", "content", "record", "attributes")
_MORE = ("exc_info", "exc_text", "stack_trace", "stack_info", "exception", "traceback")
_TIME = ("__REALTIME_TIMESTAMP", "timestamp", "@timestamp", "time", "ts", "asctime", "_time",
         "eventTime", "receiveTimestamp", "date")  # fmt: skip
_POD = ("pod_name", "pod", "podName", "kubernetes_pod_name")
_IN_POD = ("labels", "resource", "kubernetes", "fields", "attributes", "metadata")
_FRONTS = (r"(\[pod/[\w./-]+\] )", r"\S{20,40} std(?:out|err) [FP] ",
           r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16} ")  # fmt: skip
_FRONT = re.compile("|".join(rf"{front}(?=\{{)" for front in _FRONTS).encode())
# Docker's form of a line without escapes: many times faster to match than to read as JSON.
_PLAIN = re.compile(
    rb'\{"log": ?"([^"\\]*)\\n", ?"stream": ?"\w+", ?"time": ?"(\d{4}-[\d:.T-]{15,26}Z)"\}'
)
_OF_LOGS = frozenset({"stream", "severity", "level", "levelname", "logStreamName"})
_KERNEL = ("kernel", "systemd", "NetworkManager")


def _json_line() -> Peel:
    """Reads JSON, perhaps behind a pod that stays, or behind the prefix of a node's log."""

    def peel(line: bytes) -> bytes | None:
        if plain := _PLAIN.fullmatch(line):
            return b"%s %s" % (plain[2], plain[1])
        front = _FRONT.match(line)
        pod, told = (front[1] or b"", line[front.end() :]) if front else (b"", line)
        if told[:1] not in (b"{", b"["):
            return None
        try:
            entry = json.loads(told.rstrip(b","))
        except (ValueError, RecursionError):
            return None
        if (text := _entry(entry)) is None:
            return None
        return pod + text.encode(errors="replace").replace(b"\n", b"\n" + pod)

    return peel


def _entry(entry: Any) -> str | None:
    """Returns the text of one entry, behind its time and pod; None for other values."""
    if isinstance(entry, list):  # a query's row: names and values of its fields
        with suppress(TypeError, KeyError):
            entry = {field["field"]: field["value"] for field in entry}
    if not isinstance(entry, dict):
        return None
    parts = [entry, *(entry[key] for key in _NESTED if isinstance(entry.get(key), dict))]
    text = next((t for part in parts for key in _TEXT if isinstance(t := part.get(key), str)), None)
    when = next((w for part in parts for key in _TIME if (w := _stamp(part.get(key)))), "")
    if text is None or not (when or entry.keys() & _OF_LOGS):
        return None
    text = "\n".join([text, *(m for key in _MORE if isinstance(m := entry.get(key), str))])
    front = f"{when} " if when else ""
    host, program = entry.get("_HOSTNAME"), entry.get("SYSLOG_IDENTIFIER")
    if host and str(program).startswith(_KERNEL):
        front += f"{host} {program}: "
    elif pod := _pod(entry):
        front += f"[pod/{pod}/_] "
    return "\n".join(front + line for line in text.rstrip("\r\n").split("\n"))


def _pod(entry: Mapping[str, Any]) -> str:
    for key in _POD:
        if isinstance(pod := entry.get(key), str) and re.fullmatch(r"[\w.-]{1,100}", pod):
            return pod
    inner = (_pod(entry[key]) for key in _IN_POD if isinstance(entry.get(key), dict))
    return next((pod for pod in inner if pod), "")


def _stamp(value: Any) -> str:
    """Returns a time as Kubernetes writes it; "" for other values."""
    if isinstance(value, str) and (iso := re.match(r"(\d{4}-\d\d-\d\d)[T ]([\d:.]{5,18})", value)):
        zone = re.search(r"Z$|[+-]\d\d:?\d\d$", value)
        return f"{iso[1]}T{iso[2]}{zone[0] if zone else 'Z'}"
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    with suppress(ValueError, OverflowError, OSError):
        number = float(value)
        for _ in range(3):  # milli-, micro- or nanoseconds
            number /= 1000 if number > 1 << 33 else 1
        if unix_time(number) and number > 1e9:
            read = datetime.fromtimestamp(number, timezone.utc)
            return read.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return ""


def _entries(content: bytes) -> str | None:
    """Reads a list of entries: gcloud logging read, aws logs get-log-events, a search."""
    try:
        value = json.loads(content)
    except ValueError:  # one a line
        value = [json.loads(line) for line in content.splitlines() if line.strip()]
    if isinstance(value, str):
        return value
    for key in ("events", "entries", "logs", "results", "hits", "hits", "data", "result"):
        if isinstance(value, dict):
            value = value.get(key, value)
    if isinstance(value, list) and all(isinstance(one, dict) and "values" in one for one in value):
        value = [  # Loki's: streams of times and lines
            {**one.get("stream", {}), "time": when, "line": line}
            for one in value for when, line, *_ in one["values"]
        ]  # fmt: skip
    if not isinstance(value, list):
        return None
    lines = [_entry(entry) for entry in value]
    told = [line for line in lines if line is not None]
    return "\n".join(told) + "\n" if told and 2 * len(told) > len(lines) else None


def _notebook(content: bytes) -> str | None:
    """Reads the output and exceptions of a notebook's cells."""
    return "".join(
        (part if isinstance(part, str) else "".join(part)) + "\n"
        for cell in json.loads(content)["cells"]
        for output in cell.get("outputs", ())
        for part in (output.get("text"), "\n".join(output.get("traceback", ())))
        if part
    )


def _split(text: str) -> list[str]:
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _width(text: str) -> int:
    """Returns the number of columns at which a terminal cut the lines of a text; 0 if uncut.
    If cut, the longest lines have one length, and words cut by it stand whole elsewhere."""
    lines = _split(text)
    lengths = list(map(len, lines))
    width = max(lengths)
    if width < _NARROWEST or lengths.count(width) > len(lines) * 0.7:
        return 0
    cut = [(line, after) for line, after in itertools.pairwise(lines)
           if len(line) == width and _IN_WORD.match(line[-1] + after[:1])]  # fmt: skip
    halves = ((_WORD_AT_END.search(line, width - 40), _WORD.match(after)) for line, after in cut)
    joined = [end[0] + begin[0] for end, begin in halves if end and begin]
    joined = [word for word in joined if len(word) >= _LEAST_WORD and not word.isdigit()]
    words = set(_WORD.findall(text)) if len(joined) > 1 else set()
    whole = [word for word in joined if word in words or word in _OF_WATCHDOGS]
    enough = len(whole) > 1 or not _OF_WATCHDOGS.isdisjoint(whole)
    return width if enough and 2 * len(whole) >= len(joined) else 0


def _uncut(content: bytes) -> str:
    """Joins the lines that a terminal cut. The lines after them keep their numbers."""
    text = content.decode(errors="replace")
    lines, width = _split(text), _width(content[:_HEAD_OF_TEXT].decode(errors="replace"))
    joined: list[str] = []
    for number, line in enumerate(lines):
        if number and len(lines[number - 1]) == width and not _BEGINS.match(line):
            joined[-1] += line
        else:
            joined += [""] * (number - len(joined)) + [line]
    return "".join(f"{line}\n" for line in joined)


_HEAD_OF_TEXT, _NARROWEST, _LEAST_WORD = 16 << 10, 60, 6
_OF_WATCHDOGS = frozenset((
    "OpType", "SeqNum", "NumelIn", "NumelOut", "Timeout", "Watchdog", "collective", "operation",
    "timeout", "milliseconds", "exception", "terminated", "enqueued", "completed", "Traceback",
))  # fmt: skip
_IN_WORD = re.compile(r"\w\w")  # quick: few lines of stacks end in words
_WORD, _WORD_AT_END = re.compile(r"\w+"), re.compile(r"\w+\Z")
_BEGINS = re.compile(r"\[|\d{4}-\d\d-|[EWIF]\d{4} |Traceback |  File ")
_BY_WIDTH = Envelope("lines that a terminal cut", _read_by(_uncut))
# A file of one JSON text, and a pattern for its head.
_WHOLE: tuple[tuple[Envelope, re.Pattern[bytes]], ...] = (
    (Envelope("a notebook", _read_by(_notebook)),
     re.compile(rb'\A\s*\{(?s:.*)"(?:cell_type|nbformat)"\s*:')),
    (Envelope("a text in quotation marks", _read_by(_entries)),
     re.compile(rb'\A"(?=[^\n]*\\n)[^\n]*\n?\Z')),
    (Envelope("a list of log entries", _read_by(_entries)),
     re.compile(rb'\A\s*(?:\[\s*\{|\{\s*"(?:events|entries|logs|results|hits)"\s*:)(?s:.*)'
                rb'"(?:textPayload|jsonPayload|@?message|MESSAGE|line|value)"\s*:|'
                rb'\A\s*\{(?s:.*)"resultType"\s*:\s*"streams"')),
)  # fmt: skip
_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)"
# Bounded: a line may be long, and the time grows with the product.
_FILE = r"[\w./+-]{0,300}[./][\w./+-]{0,300}?"
# The envelopes of single lines, and the beginnings of their first lines.
_BY_LINE: tuple[tuple[str, Callable[[], Peel], re.Pattern[bytes]], ...] = tuple(
    (name, make, re.compile(first.encode()))
    for name, make, first in (
        ("JSON lines", _json_line,
         rf'(?:(?:{"|".join(_FRONTS)})\{{"|\[?\{{")[\w@]+": ?'),
        ("grep -Hn", _cut(rf"(?P<file>{_FILE})[:-](?P<number>\d{{1,9}})[:-](?!\d+ \[)"),
         rf"{_FILE}[:-]\d+[:-]"),
        ("grep -n", _cut(r"(?P<number>\d{1,9})[:-](?!\d\d:\d\d)"), r"\d+[:-]"),
        ("cat -n", _cut(r" *(?P<number>\d{1,9})(?:\t|  ?(?:[|]|│) ?)"), r" *\d+(?:\t| )"),
        ("quotation marks", _cut(r"(?:> ?)+(?! )|(?:> ?)"), r">"),
        ("stern", _cut(r"(?P<pod>[a-z0-9]+(?:-[a-z0-9]+)*-[a-z0-9]*\d[a-z0-9]*) [a-z][a-z0-9-]* "
                       "(?:\u203a )?"), r"[a-z0-9-]+ [a-z]|\+ "),
        ("a table or code", _cut(r"[|`] ?(?P<text>.*?) ?[|`]$"), r"[|`].*[|`]$"),
        ("cat -A", _cut(r"(?P<text>.*)\$$"), r".*\$$"),
        ("fluentd", _cut(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]* [+-]\d{4} [\w.-]+: (?=\{)"),
         r"\d{4}-\d\d-\d\d "),
        ("ts", _cut(r"\[(?P<stamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*)\](?= \[rank\d)"),
         r"\[\d{4}-"),
        ("compose", _cut(r"(?P<pod>[\w.-]+_\d+) +\| ?"), r"[\w.-]+_\d+ +\|"),
        ("CloudWatch", _cut(rf"(?P<stamp>{_STAMP} )[\w.-]+(?:/[\w.\[\]-]+)+ "),
         rf"{_STAMP} [\w.-]+/"),
        ("an indent", _indented, r"[ \t]+\S"),
    )
)  # fmt: skip

"""Reads what NCCL RAS says: output of ncclras as text, as JSON, and of its monitor (2.24 to 2.31).

RAS counts launches of five collectives, no send or recv. It lists the rarest count, which may be
ahead: the facts hold the counts of all ranks, and blame nobody.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from oddrank.inputs import Item, Notes, unix_time
from oddrank.inputs.files import is_text
from oddrank.triage.evidence import Kind
from oddrank.triage.evidence.nccl_ras_text import (
    has_json,
    has_text,
    nccl_error,
    op_name,
    text_facts,
)
from oddrank.triage.facts import Counts, Fact, Identity, Process, Source, Trouble

_MOST_JSON = 256 << 20
_START = re.compile(r'\{\s*"(?:nccl_version|timestamp)"\s*:')
# 2.28.7 and 2.28.9 leave a comma out in missing_ranks[].
_NO_COMMA = re.compile(r'("nvml_dev"\s*:\s*-?\d+)(\s+"status")')
# ncclResult_t
ERRORS = {
    1: "unhandled CUDA error", 2: "system error", 3: "internal error", 4: "invalid argument",
    5: "invalid usage", 6: "remote process error",
}  # fmt: skip
_IN_PROGRESS = 7


def _sniff(item: Item) -> bool:
    return is_text(item) and (has_text(item) or has_json(item))


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    facts: list[Fact] = []
    for item in items:
        if has_json(item):
            facts += _json_facts(item, notes)
        if has_text(item):
            facts += text_facts(item)
    return facts


def _json_facts(item: Item, notes: Notes) -> Iterator[Fact]:
    """Reads all documents of a file; other text may stand between them."""
    if item.size > _MOST_JSON:
        notes.add(item, f"RAS output in JSON over {_MOST_JSON >> 20} MiB is not read")
        return
    try:
        text = item.path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        notes.add(item, f"not readable: {error.strerror}")
        return
    text = _NO_COMMA.sub(r"\1,\2", text)
    decoder, position, line, counted = json.JSONDecoder(), 0, 1, 0
    while start := _START.search(text, position):
        line += text.count("\n", counted, start.start())
        counted = start.start()
        try:
            document, position = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            notes.add(item, f"line {line}: RAS output in JSON that is cut off or broken")
            position = start.end()
            continue
        source = Source(item.name, line)
        try:
            if "event" in document:
                yield from _event(document, source)
            else:
                yield from _document(document, source)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            notes.add(item, f"line {line}: RAS output in JSON with unexpected values")


def _document(document: dict[str, Any], source: Source) -> Iterator[Fact]:
    when = _time(document.get("timestamp"))
    communicators = [c for c in document["communicators"] if isinstance(c, dict)]
    everyone = {
        (str(rank["host"]), int(rank["pid"]), int(rank.get("nvml_dev", rank["cuda_dev"])))
        for communicator in communicators
        for rank in (*communicator["ranks"], *communicator.get("missing_ranks", ()))
    }
    for communicator in communicators:
        yield from _communicator(communicator, len(everyone), when, source)


def _communicator(
    communicator: dict[str, Any], job: int, when: float | None, source: Source
) -> Iterator[Fact]:
    size = int(communicator["size"])
    whole = size == job
    members: dict[int, Process] = {}
    for row in (*communicator["ranks"], *communicator.get("missing_ranks", ())):
        rank, known = int(row["rank"]), int(row["pid"]) > 0
        members[rank] = Process(
            rank if whole else None,
            str(row["host"]) if known else None,
            int(row["pid"]) if known else None,
        )
        if known:
            yield Identity(members[rank], source, gpu_index=int(row.get("nvml_dev", -1)))
    yield from _errors(communicator["ranks"], source, when)
    missing = [row for row in communicator.get("missing_ranks", ()) if row.get("status")]
    dead = tuple(int(r["rank"]) for r in missing if r["status"].get("considered_dead"))
    silent = tuple(
        int(r["rank"])
        for r in missing
        if r["status"].get("unresponsive") and int(r["rank"]) not in dead
    )
    ops = dict.fromkeys(op for row in communicator["ranks"] for op in row["collective_counts"])
    told = False
    for op in ops:
        counts = tuple(
            sorted((int(r["rank"]), int(r["collective_counts"].get(op, 0)))
                   for r in communicator["ranks"])
        )  # fmt: skip
        if any(count for _, count in counts):
            told = True
            yield Counts(
                str(communicator["hash"]).removeprefix("0x"), op_name(op), counts, source, when,
                dead, silent, size, whole, tuple(sorted(members.items())),
            )  # fmt: skip
    if not told:
        yield Counts(
            str(communicator["hash"]).removeprefix("0x"), "", (), source, when,
            dead, silent, size, whole, tuple(sorted(members.items())),
        )  # fmt: skip


def _errors(rows: Sequence[dict[str, Any]], source: Source, when: float | None) -> Iterator[Fact]:
    for row in rows:
        for name in ("init_state", "async_error"):
            code = int(row.get("status", {}).get(name, 0))
            if code not in (0, _IN_PROGRESS):
                error = ERRORS.get(code, f"error {code}")
                process = Process(None, str(row["host"]), int(row["pid"]))
                yield nccl_error(error, source, process, int(row["cuda_dev"]), when)


def _event(document: dict[str, Any], source: Source) -> Iterator[Fact]:
    """Reads an event of the monitor. Only a death is a fact: the rest happens in healthy jobs."""
    if document["event"] in ("PEER_DEAD", "PEER_TIMEOUT_DEAD") and "peer" in document:
        peer, when = document["peer"], _time(document.get("timestamp"))
        gpus = ",".join(str(int(gpu)) for gpu in peer["cuda_devs"])
        yield Trouble(
            "unreachable", "NCCL RAS calls its process dead", source, str(peer["host"]),
            f"GPU {gpus}", fatal=True, time=when, last=when, pid=int(peer["pid"]),
            pids=(int(peer["pid"]),), coarse=True,
        )  # fmt: skip


def _time(text: object) -> float | None:
    """Returns Unix seconds of a local time without zone, taken as UTC."""
    try:
        read = datetime.fromisoformat(str(text))
        return unix_time(read.replace(tzinfo=timezone.utc).timestamp())
    except ValueError:
        return None


KIND = Kind("NCCL RAS", binary=False, sniff=_sniff, read=_read)

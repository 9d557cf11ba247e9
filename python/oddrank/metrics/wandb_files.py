"""Reads the rows of `.wandb` files, which wandb's own Python can't: what `wandb.log` was given.

A file is a log of records, as of LevelDB, each a message of protobuf (wandb_internal.proto):
a HistoryRecord holds a row, whose values are JSON. Checksums (CRC-32C) are not checked.
"""

import json
import struct
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

MAGIC = b":W&B"
_HEAD, _BLOCK = 7, 32 * 1024  # bytes: of the file, of a part of a record
_WHOLE, _FIRST, _LAST = 1, 2, 4  # else a part from the middle
# Numbers of fields: of Record, of HistoryRecord, and of its items.
_HISTORY, _ITEM, _KEY, _NESTED_KEY, _JSON = 2, 1, 1, 2, 16
_DAMAGED = "premature end or damage of a record"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def rows(path: Path) -> Iterator[bytes]:
    """Yields each row that has a step as a line of its time and of JSON.

    Raises:
        ValueError: The file is cut off or damaged behind the rows so far.

    """
    with path.open("rb") as file:
        for record in _records(iter(lambda: file.read(_BLOCK), b"")):
            for field, history in _fields(record):
                if field == _HISTORY and (line := _line(history)):
                    yield line


def _line(history: bytes) -> bytes | None:
    values: dict[str, Any] = {}
    for field, item in _fields(history):
        if field == _ITEM:
            found: dict[int, list[bytes]] = {}
            for number, part in _fields(item):
                found.setdefault(number, []).append(part)
            name = b"/".join(found.get(_KEY, found.get(_NESTED_KEY, []))).decode()
            values[name] = json.loads(b"".join(found.get(_JSON, [b"null"])))
    if "_step" not in values:
        return None
    numbers = {k: v for k, v in values.items() if type(v) in (int, float) and k[:1] != "_"}
    time = values.get("_timestamp")
    stamp = f"{datetime.fromtimestamp(time, timezone.utc).isoformat()} " if time else ""
    return f"{stamp}{json.dumps({'step': values['_step']} | numbers)}\n".encode()


def _records(blocks: Iterator[bytes]) -> Iterator[bytes]:
    record, begun = b"", False
    for number, block in enumerate(blocks):
        at = _HEAD if number == 0 else 0
        while at + 7 <= len(block):
            _, size, kind = struct.unpack_from("<IHB", block, at)
            at += 7
            part = block[at : at + size]
            at += size
            is_first = kind in (_WHOLE, _FIRST)
            if not 1 <= kind <= 4 or len(part) < size or is_first == begun:
                raise ValueError(_DAMAGED)
            record, begun = part if is_first else record + part, kind not in (_WHOLE, _LAST)
            if not begun:
                yield record
    if begun:
        raise ValueError(_DAMAGED)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields number and bytes of each field that has bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while shift < 64 and at < len(message):
            byte = message[at]
            at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
        raise ValueError(_DAMAGED)

    while at < len(message):
        field, kind = divmod(varint(), 8)
        if kind == _VARINT:
            varint()
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind, -1) if kind != _BYTES else varint()
        if size < 0 or at + size > len(message):
            raise ValueError(_DAMAGED)
        at += size
        if kind == _BYTES:
            yield field, message[at - size : at]

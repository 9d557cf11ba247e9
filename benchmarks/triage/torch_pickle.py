"""Writes dumps of the flight recorder as torch's own pickler does, and as JSON has them."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Frame = tuple[str, str, int]


@dataclass(frozen=True)
class Group:
    name: str
    desc: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Op:
    """An operation of a program. peer: global rank. wait: the host waits for it to complete."""

    group: Group
    name: str
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    dtype: str = "BFloat16"
    peer: int | None = None
    wait: bool = False


@dataclass(frozen=True)
class Row:
    """An entry of a dump."""

    op: Op
    group: Group
    pg_id: int
    record: int
    seq: int
    message: int
    op_id: int
    created: int
    completed: int
    state: str
    profiling_name: str
    frames: tuple[Frame, ...] = ()
    """Function, file, line; innermost first."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the entry as torch's JSON and a Python pickle have it."""
        inputs, outputs = ([list(shape)] for shape in self.op.sizes)
        return {
            **({"frames": _stack(self.frames)} if self.frames else {}),
            "record_id": self.record,
            "pg_id": self.pg_id,
            "process_group": (self.group.name, self.group.desc),
            "thread_name": "python3",
            "thread_id": "139876543210",
            "collective_seq_id": self.seq,
            "p2p_seq_id": self.message,
            "op_id": self.op_id,
            "profiling_name": self.profiling_name,
            "time_created_ns": self.created,
            "input_sizes": inputs,
            "input_dtypes": [self.op.dtype],
            "output_sizes": outputs,
            "output_dtypes": [self.op.dtype],
            "state": self.state,
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": self.completed or None,
            "retired": self.state == "completed",
            "timeout_ms": 600_000,
            "is_p2p": self.op.peer is not None,
        }


def _stack(frames: Iterable[Frame]) -> list[dict[str, Any]]:
    return [{"name": name, "filename": file, "line": line} for name, file, line in frames]


class TorchPickle:
    """Writes a dump as torch's own pickler does: protocol 2, each text and frame once."""

    def __init__(self) -> None:
        self._memo: dict[str | Frame, bytes] = {}
        self._pieces: dict[Any, bytes] = {}

    def dump(self, rows: dict[str, Any], entries: Iterable[Row]) -> bytes:
        parts = [b"\x80\x02}("]
        for key, value in rows.items():
            parts += [self._text(key), self._any(value)]
        parts += [self._text("entries"), b"]("]
        parts += [self._entry(row) for row in entries]
        parts.append(b"eu.")
        return b"".join(parts)

    def _entry(self, row: Row) -> bytes:
        number = self._number
        return b"".join((
            self._piece(("head", row.frames)), number(row.record),
            self._piece(("group", row.pg_id, row.group.name, row.group.desc)), number(row.seq),
            self._piece(("p2p_seq_id",)), number(row.message),
            self._piece(("op_id",)), number(row.op_id),
            self._piece(("name", row.profiling_name)), number(row.created),
            self._piece(("sizes", row.op.sizes, row.op.dtype, row.state)),
            self._piece(("time_discovered_completed_ns",)),
            number(row.completed) if row.completed else b"N",
            self._piece(("tail", row.state == "completed", row.op.peer is not None)),
        ))  # fmt: skip

    def _piece(self, key: Any) -> bytes:
        found = self._pieces.get(key)
        if found is None:
            known = len(self._memo)
            found = self._make(key)
            # A piece that defines texts is used once; the next of its kind refers to them.
            if len(self._memo) == known:
                self._pieces[key] = found
        return found

    def _make(self, key: Any) -> bytes:
        text, any_ = self._text, self._any
        parts: list[bytes] = []
        match key:
            case ("head", frames):
                parts = [b"}("]
                if frames:
                    parts += [text("frames"), b"](", *map(self._frame, frames), b"e"]
                parts.append(text("record_id"))
            case ("group", pg_id, name, desc):
                parts = [
                    text("pg_id"), any_(pg_id), text("process_group"), text(name), text(desc),
                    b"\x86", text("thread_name"), text("python3"), text("thread_id"),
                    text("139876543210"), text("collective_seq_id"),
                ]  # fmt: skip
            case ("name", name):
                parts = [text("profiling_name"), text(name), text("time_created_ns")]
            case ("sizes", (inputs, outputs), dtype, state):
                parts = [
                    text("input_sizes"), any_([list(inputs)]), text("input_dtypes"), any_([dtype]),
                    text("output_sizes"), any_([list(outputs)]), text("output_dtypes"),
                    any_([dtype]), text("state"), text(state),
                    text("time_discovered_started_ns"), b"N",
                ]  # fmt: skip
            case ("tail", done, p2p):
                parts = [
                    text("retired"), any_(done), text("timeout_ms"), any_(600_000),
                    text("is_p2p"), any_(p2p), b"u",
                ]  # fmt: skip
            case (word,):
                parts = [text(word)]
        return b"".join(parts)

    def _any(self, value: Any) -> bytes:
        match value:
            case None:
                made = b"N"
            case bool():
                made = b"\x88" if value else b"\x89"
            case int():
                made = self._number(value)
            case str():
                made = self._text(value)
            case list():
                made = b"](" + b"".join(map(self._any, value)) + b"e"
            case _:
                parts = (self._any(part) for pair in value.items() for part in pair)
                made = b"}(" + b"".join(parts) + b"u"
        return made

    def _frame(self, frame: Frame) -> bytes:
        return self._memo.get(frame) or self._remembered(frame, self._any(_stack([frame])[0]))

    def _text(self, text: str) -> bytes:
        known = self._memo.get(text)
        if known is not None:
            return known
        raw = text.encode()
        return self._remembered(text, b"X" + struct.pack("<I", len(raw)) + raw)

    def _remembered(self, what: str | Frame, written: bytes) -> bytes:
        """Returns the bytes of a first write, with its number in the memo."""
        index = len(self._memo)
        put, get = (b"q", b"h") if index < 256 else (b"r", b"j")
        packed = struct.pack("<B" if index < 256 else "<I", index)
        self._memo[what] = get + packed
        return written + put + packed

    @staticmethod
    def _number(value: int) -> bytes:
        if 0 <= value < 256:
            return b"K" + bytes((value,))
        if 0 <= value < 65536:
            return b"M" + struct.pack("<H", value)
        if -(1 << 31) <= value < 1 << 31:
            return b"J" + struct.pack("<i", value)
        return b"\x8a\x08" + struct.pack("<q", value)

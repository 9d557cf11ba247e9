"""Writes NicerTrace's text to sys.stdout, which may be a Tee."""

import io
import os
import sys
from typing import Any


class Tee:
    """Writes to the present stdout and appends to a file: sys.stdout = oddrank.trace.Tee("a.txt").

    Flushes each write to the file at once. All other attributes are stdout's.
    """

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.stdout = sys.stdout
        self.file = open(filename, "a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115

    def __getattr__(self, attr: str) -> Any:
        return getattr(self.stdout, attr)

    def write(self, msg: str) -> int:
        self.stdout.write(msg)
        self.file.write(msg)
        self.file.flush()
        return len(msg)

    def flush(self) -> None:
        self.stdout.flush()
        self.file.flush()


def write(text: str) -> None:
    """Writes to sys.stdout and flushes it; escapes characters that its encoding lacks.

    Writes past the buffer of Python's own stdout: text without a reader would stay in the buffer
    and cause a second error when Python ends.
    """
    stream = sys.stdout
    if stream is None:
        return
    if _is_plain(stream):
        try:
            data = text.encode("utf-8", stream.errors or "strict")
        except UnicodeEncodeError:
            data = text.encode("utf-8", "backslashreplace")
        stream.flush()
        _write_all(stream.fileno(), data)
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _is_plain(stream: Any) -> bool:
    if type(stream) is not io.TextIOWrapper or stream.encoding.lower() != "utf-8":
        return False
    raw = getattr(stream.buffer, "raw", None)
    return isinstance(raw, io.FileIO) and os.get_blocking(raw.fileno())


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]

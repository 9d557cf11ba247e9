"""Where NicerTrace's text goes: sys.stdout, and a Tee in its place."""

import io
import os
import sys
from typing import Any


class Tee:
    """Writes to stdout as it was and to a file, appending: sys.stdout = Tee("trace.txt").

    Each write is flushed to the file at once. All else is asked of stdout.
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
    """To sys.stdout and through it; what its encoding does not have is written as an escape.

    A stdout as Python makes it is written to past its buffer: what nobody reads would stay in there
    and be complained about again when Python ends.
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

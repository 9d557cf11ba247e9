"""Where NicerTrace's text goes: sys.stdout, and a Tee in its place."""

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
    """To sys.stdout and through it; what its encoding does not have is written as an escape."""
    stream = sys.stdout
    if stream is None:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()

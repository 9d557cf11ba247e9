"""Records where each rank is and was. `Tee` keeps what NicerTrace prints."""

import os
import sys
from typing import Any

__all__ = ["Tee"]


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

"""Puts who wrote it before every line that Python code writes to stdout and stderr.

The lines go through printflock: they stay whole. No helper process and no pipe: nothing that can
end takes output with it, and isatty(), fileno() and buffering are those of the stream. So bytes
that bypass the stream are not covered: C and C++ code, sys.stdout.buffer, programs started here.
"""

import sys
import threading
from typing import TextIO

from oddrank.printing import install_printing, printflock

PREFIX = "[{host}:rank{rank}] "
"""A form that the scanner of logs knows (csrc/logs/prefixes.cpp)."""
_MOST_WAITING = 64 << 10


class PrefixedStream:
    """A text stream that hands on whole lines; everything else is the stream's own.

    Each thread has its own unfinished line. flush() hands it on as it is: a progress bar.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._mine = threading.local()

    def write(self, text: str) -> int:
        waiting: str = getattr(self._mine, "text", "") + text
        cut = len(waiting) if len(waiting) > _MOST_WAITING else waiting.rfind("\n") + 1
        self._mine.text = waiting[cut:]
        if cut:
            printflock(waiting[:cut], end="", file=self._stream)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        waiting: str = getattr(self._mine, "text", "")
        self._mine.text = ""
        if waiting:
            printflock(waiting, end="", file=self._stream)
        self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def prefix_streams() -> None:
    """Puts PREFIX before each line of sys.stdout and sys.stderr, for as long as the process lives.

    Also of children by fork, which set the prefix anew. Raises LaunchError if nobody says which
    rank this is.
    """
    install_printing(print=False, logging=False, prefix=PREFIX)
    sys.stdout = PrefixedStream(sys.stdout)
    sys.stderr = PrefixedStream(sys.stderr)

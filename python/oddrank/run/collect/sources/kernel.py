"""Reads the end of the kernel's log, which /dev/kmsg has."""

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator

from oddrank.machine import kernel_log
from oddrank.run.collect.sources import Sink, Source, Target, iso

_MOST = 1 << 20
_ENTRY = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")


def _work(target: Target, _: object, sink: Sink) -> None:
    sink.at(kernel_log.DEVICE)
    try:
        text = _tail(_entries(), target.host, min(sink.room, _MOST))
    except OSError as error:
        sink.lacks("the kernel's log", f"{kernel_log.DEVICE}: {error.strerror}")
        return
    if text:
        sink.put("kernel.log", text, of=kernel_log.DEVICE)
    else:
        sink.lacks("the kernel's log", "it is empty")


def _tail(entries: Iterable[tuple[float, str]], host: str, most: int) -> bytes:
    """Returns the last lines, with dates: the kernel counts seconds since boot."""
    boot = time.time() - time.monotonic()
    lines: deque[bytes] = deque()
    size = 0
    for seconds, text in entries:
        lines.append(f"{iso(boot + seconds)} {host} kernel: {text}\n".encode())
        size += len(lines[-1])
        while size > most:
            size -= len(lines.popleft())
    return b"".join(lines)


def _entries() -> Iterator[tuple[float, str]]:
    for entry in kernel_log.records():
        line = entry.decode(errors="backslashreplace").partition("\n")[0]
        if found := _ENTRY.match(line):
            yield int(found[1]) / 1e6, found[2]


SOURCE = Source("kernel log", 5.0, 0.01, _work)

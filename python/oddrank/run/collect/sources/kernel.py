"""Reads the end of the kernel's log: /dev/kmsg, or else the log that syslog(2) gives."""

import ctypes
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator

from oddrank.machine import kernel_log
from oddrank.run.collect.sources import Sink, Source, Target, iso

_READ_ALL, _SIZE = 3, 10  # of syslog(2)
_MOST = 1 << 20
_ENTRY = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")
_PRINTK = re.compile(r"<\d+>\[ *(\d+\.\d+)\](?:\[[ \w]+\])? ?(.*)")


def _work(target: Target, _: object, sink: Sink) -> None:
    why = []
    for read, place in ((_of_device, kernel_log.DEVICE), (_of_syslog, "syslog(2)")):
        sink.at(place)
        try:
            text = _tail(read(), target.host, min(sink.room, _MOST))
        except OSError as error:
            why.append(f"{place}: {error.strerror}")
            continue
        if text:
            sink.put("kernel.log", text, of=place)
        else:
            sink.lacks("the kernel's log", "it is empty")
        return
    sink.lacks("the kernel's log", "; ".join(why))


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


def _of_device() -> Iterator[tuple[float, str]]:
    for entry in kernel_log.records():
        line = entry.decode(errors="backslashreplace").partition("\n")[0]
        if found := _ENTRY.match(line):
            yield int(found[1]) / 1e6, found[2]


def _of_syslog() -> Iterator[tuple[float, str]]:
    libc = ctypes.CDLL(None, use_errno=True)
    size = libc.klogctl(_SIZE, None, 0)
    buffer = ctypes.create_string_buffer(max(size, 1))
    size = libc.klogctl(_READ_ALL, buffer, len(buffer))
    if size < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for line in buffer.raw[:size].decode(errors="backslashreplace").splitlines():
        if found := _PRINTK.match(line):
            yield float(found[1]), found[2]


SOURCE = Source("kernel log", 5.0, 0.01, _work)

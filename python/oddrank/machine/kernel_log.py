"""Reads the kernel's log record by record."""

import os
from collections.abc import Iterator

DEVICE = "/dev/kmsg"
_LARGEST = 8192  # of the kernel's records


def records(path: str = DEVICE) -> Iterator[bytes]:
    """Yields the records that are there, and waits for no further one. OSError: not readable."""
    device = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                record = os.read(device, _LARGEST)
            except BlockingIOError:
                return
            except BrokenPipeError:  # overwritten before it was read
                continue
            if not record:
                return
            yield record
    finally:
        os.close(device)

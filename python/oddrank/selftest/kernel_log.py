"""What the kernel has logged of a GPU since boot: NVIDIA's Xid codes."""

import os
import re
from typing import TypeAlias

# Code -> what it means: those of broken hardware. The others are mostly a program's own fault, or
# say what NVML tells better. After docs.nvidia.com/deploy/xid-errors.
HARDWARE = {
    46: "it stopped processing",
    48: "a double-bit ECC error",
    62: "its microcontroller halted",
    64: "a bad row of memory could not be replaced",
    74: "an NVLink error",
    79: "it fell off the bus",
    92: "many single-bit ECC errors",
    95: "an uncontained memory error",
    119: "its system processor (GSP) did not answer",
    120: "its system processor (GSP) failed",
    140: "an unrecovered ECC error",
    143: "it could not be initialised",
}
_LINE = re.compile(
    rb"NVRM: Xid \(PCI:([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (\d+)"
)
_MOST = 32 << 20

Counts: TypeAlias = dict[str, int]


def xids(pci: str, path: str = "/dev/kmsg") -> Counts | str:
    """How often each code was logged for the GPU 0000:9b:00.0; a text: why it can't be read."""
    try:
        log = _read(path)
    except OSError as error:
        return f"not readable: {error.strerror}"
    slot = pci.lower().rpartition(".")[0]
    counts: Counts = {}
    for found in _LINE.finditer(log):
        if found[1].decode().lower()[-len(slot) :] == slot:
            code = found[2].decode()
            counts[code] = counts.get(code, 0) + 1
    return counts


def _read(path: str) -> bytes:
    """Of the kernel's device every read gives one record, and it would wait for the next one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        parts, size = [], 0
        while size < _MOST:
            try:
                part = os.read(descriptor, 1 << 16)
            except BrokenPipeError:  # the kernel has overwritten what came next
                continue
            except BlockingIOError:
                break
            if not part:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)

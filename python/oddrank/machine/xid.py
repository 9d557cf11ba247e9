"""Holds NVIDIA's Xids: their meanings, the side at fault, and the driver's log lines.

Source of codes and actions: docs.nvidia.com/deploy/xid-errors (the Xid catalog).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal


@dataclass(frozen=True, slots=True)
class Xid:
    """Meaning of a code. text: the GPU's fault, to follow "GPU 3: ".

    whose: hardware (or its firmware), application (a program's own error),
    unknown (both cause it), cleanup (the driver removes what another fault has stopped), notice.
    fatal: the process that uses the GPU does not survive it. broken: the GPU stays faulty until a
    reset or repair.
    """

    text: str
    whose: Literal["hardware", "application", "unknown", "cleanup", "notice"]
    fatal: bool = False
    broken: bool = False


_gpu = partial(Xid, whose="hardware", fatal=True, broken=True)
_application = partial(Xid, whose="application", fatal=True)
_either = partial(Xid, whose="unknown", fatal=True)
_COPY, _VIDEO = "its copy engine raised an exception", "its video engine raised an exception"

XIDS: dict[int, Xid] = {
    8: _either("it stopped processing"),
    11: _application("an invalid command stream"),
    13: _application("a kernel raised an exception (illegal address or instruction)"),
    25: _application("an invalid command stream"),
    31: _application("a kernel touched memory that is not mapped"),
    32: _either("an invalid command stream (PBDMA)"),
    37: Xid("its firmware got an unknown command", "notice"),
    38: _either("its firmware's watchdog expired"),
    **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), _either(_COPY)),
    43: _application("it stopped processing for a program's own error"),
    44: _either("a fault while it changed context"),
    45: Xid("the driver removed a program's work after an earlier fault or its end", "cleanup"),
    46: _gpu("it stopped processing"),
    48: _gpu("a double-bit ECC error"),
    54: _gpu("its auxiliary power is not connected"),
    60: _application(_VIDEO),
    62: _gpu("its microcontroller halted"),
    63: Xid("a bad row of memory will be replaced at the next reset", "notice"),
    64: _gpu("a bad row of memory could not be replaced"),
    **dict.fromkeys((66, 67), Xid("the driver made an illegal access", "notice")),
    **dict.fromkeys((68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139), _application(_VIDEO)),
    69: _application("a program used an engine wrongly"),
    74: _gpu("an NVLink error"),
    79: _gpu("it fell off the bus"),
    80: _either("corrupt data was sent to it"),
    92: _gpu("many single-bit ECC errors", fatal=False),
    93: Xid("its InfoROM is worn", "notice"),
    94: _gpu("a contained memory error, which ends the program that used it", broken=False),
    95: _gpu("an uncontained memory error"),
    **dict.fromkeys((106, 107), Xid("a test message", "notice")),
    109: _either("a change of context took too long"),
    110: _gpu("a security fault"),
    119: _gpu("its system processor (GSP) did not answer"),
    120: _gpu("its system processor (GSP) failed"),
    121: Xid("an error of its link to the CPU (C2C), corrected", "notice"),
    136: _gpu("its NVLinks could not be trained"),
    137: Xid("an NVLink privilege error, often after a remote fault", "cleanup"),
    140: _gpu("an unrecovered ECC error"),
    141: Xid("an error of CUDA's fast path", "notice"),
    143: _gpu("it could not be initialised"),
    **{
        code: _gpu(f"an NVLink error ({unit})")
        for code, unit in enumerate(
            ("SAW", "RLW", "TLW", "TREX", "NVLPW_CTRL", "NETIR", "MSE"), 144
        )
    },
    154: _gpu("the driver asks for a reset or a reboot"),
    155: _gpu("an NVLink error that software defined"),
    156: _gpu("a faulty unit was retired: a reset is needed"),
    157: _gpu("a faulty unit could not be retired"),
    158: _gpu("a fatal timeout"),
    160: Xid("a channel was retired", "notice"),
    161: Xid("a channel could not be retired", "notice"),
    162: Xid("power smoothing is on again", "notice"),
    163: Xid("power smoothing is off", "notice"),
    167: _gpu("a fatal PCIe timeout"),
    168: _gpu("errors in its write-protected memory"),
    169: _gpu("its microcontroller halted"),
}
UNKNOWN = Xid("a code that oddrank does not know", "unknown")

# Faults that stay until a reset or repair: Xid -> its meaning.
HARDWARE = {code: xid.text for code, xid in XIDS.items() if xid.broken}

# A line of the driver: 1: the GPU's PCI address without function, 2: the code, 3: the rest. Before
# 2013 it had no "PCI:"; MIG instances and GPU names stand behind the address.
XID = (
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)\n]*\): (\d+)([^\n]*)"
)
# The first line of an NVSwitch's error: 1: its PCI address, 2: the code, 3: Fatal or Non-fatal,
# 4: the rest. Other lines ("Severity", "Data") repeat the code. Non-fatal ones happen to healthy
# switches.
SXID = r"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), (Fatal|Non-fatal)\b([^\n]*)"

# Lines that report no fault: NVLink 5 corrects some errors itself, and the end of a recovery is an
# Xid 154, too.
_HARMLESS = {**dict.fromkeys(range(144, 151), r"\bNonfatal\b"), 154: r" to 0x0 "}


def harmless(code: int, rest: str) -> bool:
    """Returns whether a line with this code, and this text behind it, reports no fault."""
    return code in _HARMLESS and re.search(_HARMLESS[code], rest) is not None


def pci_slot(address: str) -> str:
    """Returns a PCI address in one form, 0000:9b:00: short domain, no function, lower case.

    Takes 00000000:9B:00.0, 0000:9b:00.0, 9b:00.0, and NCCL's bus id 9b000. Returns the text itself
    if it is none of these.
    """
    found = re.fullmatch(
        r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?", address.lower()
    )
    if found:
        return f"{(found[1] or '').lstrip('0').zfill(4)}:{found[2]}:{found[3]}"
    if re.fullmatch(r"[0-9a-fA-F]{1,12}", address):
        number = int(address, 16)
        return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}"
    return address


KERNEL_LOG = "/dev/kmsg"
_LARGEST = 8192  # bytes of a record of the kernel


def records(path: str = KERNEL_LOG) -> Iterator[bytes]:
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

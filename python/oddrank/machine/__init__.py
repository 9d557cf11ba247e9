"""A rank's device and memory, its host's network interfaces, and its settings."""

import ctypes
import os
import signal
import zlib
from pathlib import Path

from oddrank import job
from oddrank.launch import Launch

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def small_file(path: str | os.PathLike[str]) -> str:
    """Returns the text of a file of the kernel, stripped; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def process_state(pid: int) -> str:
    """Returns the state of a process, a letter as in /proc/PID/stat; "" if it is gone."""
    return "".join(job.stat_fields(pid)[:1])


def end_with(parent: int) -> None:
    """Ends this process with its parent, however that one ends. parent: its pid at the fork."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def node_number(launch: Launch) -> int:
    """Returns a number that all ranks of a host share: the launcher's, or a hash.
    The hash is of name and boot id, as two hosts may be called localhost."""
    if launch.node_is_known:
        return launch.node
    name = f"{launch.host} {small_file(_BOOT_ID)}"
    return zlib.crc32(name.encode(errors="replace")) % (1 << 30)


INFINIBAND = Path("/sys/class/infiniband")


def is_allowed(name: str, listed: str) -> bool:
    """Returns whether NCCL may use an interface, by a list like NCCL_SOCKET_IFNAME.

    listed: prefixes of names, separated by commas, each with an optional :PORT. A leading ^
    excludes the listed names; a = after that demands whole names. Blanks belong to the names. An
    empty list allows all; ^ alone allows none. Source: NCCL 2.30, src/misc/utils.cc
    (parseStringList, matchIfList) and their callers.
    """
    excluded, exact = listed.startswith("^"), listed.removeprefix("^").startswith("=")
    entries = listed.removeprefix("^").removeprefix("=").split(",")
    wanted = [one for entry in entries if (one := entry.partition(":")[0])]
    named = any(name == one if exact else name.startswith(one) for one in wanted)
    return (named or not wanted) != excluded

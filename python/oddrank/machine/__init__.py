"""A rank's device and memory, its host's network interfaces, and its settings."""

import re
import zlib
from os import PathLike
from pathlib import Path

from oddrank import job
from oddrank.launch import Launch

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def small_file(path: str | PathLike[str]) -> str:
    """Returns the text of a file of the kernel, stripped; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def process_state(pid: int) -> str:
    """Returns the state of a process, a letter as in /proc/PID/stat; "" if it is gone."""
    return "".join(job.stat_fields(pid)[:1])


def node_number(launch: Launch) -> int:
    """Returns a number that all ranks of a host share.

    Without the launcher's number: a hash of name and boot id, as two hosts may be called localhost.
    """
    if launch.node_is_known:
        return launch.node
    name = f"{launch.host} {small_file(_BOOT_ID)}"
    return zlib.crc32(name.encode(errors="replace")) % (1 << 30)


INFINIBAND = Path("/sys/class/infiniband")


def is_allowed(name: str, listed: str, port: int = -1) -> bool:
    """Returns whether NCCL may use an interface or RDMA port, by a list like NCCL_IB_HCA.

    listed: prefixes of names, separated by commas, each with an optional :PORT. A leading ^
    excludes the listed names; a = after that demands whole names. Blanks belong to the names. An
    empty list allows all; ^ alone allows none. Source: NCCL 2.30, src/misc/utils.cc
    (parseStringList, matchIfList) and their callers.
    """
    excluded = listed.startswith("^")
    listed = listed.removeprefix("^")
    exact = listed.startswith("=")
    entries = [entry for entry in listed.removeprefix("=").split(",") if entry.partition(":")[0]]
    named = not entries or any(_fits(name, port, entry, exact) for entry in entries)
    return named != excluded


def _fits(name: str, port: int, entry: str, exact: bool) -> bool:
    """Returns whether an entry NAME[:PORT[:RAIL[:PLANE]]] means this name and port."""
    wanted, number, *_ = [*entry.split(":"), ""]
    same = name == wanted if exact else name.startswith(wanted)
    return same and (port == -1 or not number or _leading_number(number) in (-1, port))


def _leading_number(text: str) -> int:
    """Parses like C's atoi: 0 for text that begins with no number."""
    found = re.match(r"\s*([-+]?[0-9]{1,9})", text, re.ASCII)
    return int(found[1]) if found else 0

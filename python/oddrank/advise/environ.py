"""Reads the variables of this process, and what they mean for it.

Values of unknown variables may be secrets: they are dropped where they are read. Names of variables
are kept if they belong to a library of the table, or are near to a name of it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import metadata

from oddrank import launch
from oddrank.advise.variables import FAMILIES, KNOWN, TABLE
from oddrank.errors import LaunchError
from oddrank.machine.interfaces import INFINIBAND

_MOST_VALUE = 4096
# Lengths of names that are looked at for a slip of the hand, and difflib's ratio of one in ten
# letters.
_SHORTEST, _LONGEST, _ALIKE = 8, 80, 0.9


@dataclass(frozen=True)
class Process:
    """A process and what its variables mean for it.

    variables: those of the table with their values; others of the same libraries, or nearly of the
    same name, with None. processors: those it may use. of_host: those of the host. devices: the
    host's RDMA devices. torch: version of torch in oddrank's own environment, or ().
    """

    variables: Mapping[str, str | None]
    world: int = 1
    local_world: int = 1
    nodes: int = 1
    processors: int = 1
    of_host: int = 1
    devices: tuple[str, ...] = ()
    torch: tuple[int, ...] = ()


def here() -> Process:
    """Returns this process."""
    try:
        place = launch.current()
    except LaunchError:
        place = launch.current({})  # the variables contradict each other: doctor says which
    return Process(
        variables={
            name: os.environ[name][:_MOST_VALUE] if name in TABLE else None
            for name in sorted(os.environ)
            if name in TABLE or name.startswith(FAMILIES) or nearest(name)
        },
        world=place.world,
        local_world=place.local_world,
        nodes=place.nodes,
        processors=len(os.sched_getaffinity(0)),
        of_host=os.cpu_count() or 1,
        devices=tuple(sorted(folder.name for folder in INFINIBAND.glob("*"))),
        torch=_torch(),
    )


def _torch() -> tuple[int, ...]:
    """Returns torch's version here, without importing it."""
    try:
        numbers = metadata.version("torch").split("+")[0].split(".")[:2]
        return tuple(int(one) for one in numbers)
    except (metadata.PackageNotFoundError, ValueError):
        return ()


def nearest(name: str) -> str:
    """Returns the known name that `name` misspells; "" if it is known, or near to none.

    Upper and lower case count as the same letter. The first letter must be right: HCCL_ and RCCL_
    are other libraries than NCCL_.
    """
    if name in KNOWN or not _SHORTEST <= len(name) <= _LONGEST:
        return ""
    upper = name.upper()
    alike = [known for known in sorted(KNOWN) if known[0] == upper[0]]
    return upper if upper in KNOWN else next(iter(get_close_matches(upper, alike, 1, _ALIKE)), "")

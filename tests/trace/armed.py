"""Arms a process, for programs that tests run."""

import sysconfig
from collections.abc import Sequence
from pathlib import Path

from oddrank import _native


def arm(
    folder: Path,
    *,
    rank: int = 0,
    world: int = 1,
    rules: Sequence[tuple[str, str]] = (("*", "off"),),
    megabytes: int = 4,
) -> str:
    """Makes this process's record file in `folder`; returns its path."""
    paths = sysconfig.get_paths()
    path: str = _native.core().trace_arm(
        [str(folder)],
        "job",
        megabytes << 20,
        (rank, rank, world, 0),
        False,
        "host",
        "program",
        rules,
        [paths["stdlib"] + "/"],
        [paths["purelib"] + "/", paths["platlib"] + "/"],
    )
    return path

"""A rank's versions and settings: a difference may explain why a later run is slower."""

import os
import re
from pathlib import Path
from typing import TypedDict

from oddrank.machine import small_file

TABLE = Path(__file__).with_name("variables.txt").read_text(encoding="utf-8").replace("\n ", " ")
"""Environment variables, a line each; the file describes the fields."""


def _marked(marks: str) -> list[str]:
    return sorted(re.findall(rf"^[{marks}](\w+)", TABLE, re.MULTILINE))


# The only environment variables that are shown: values of others may be secrets. They choose
# transports, algorithms and threads. NCCL reads the last one, which its guide does not have.
SETTINGS = (*_marked("!~+"), "NCCL_GRAPH_FILE")
MUST_AGREE, MAY_DIFFER = frozenset(_marked("!")), frozenset(_marked("~"))
_MOST_TEXT = 1000  # lists of NICs are long, and differ at their ends


class Setup(TypedDict):
    """A rank's versions, and its settings by name."""

    torch: str
    cuda: str | None
    driver: str | None
    settings: dict[str, str]


def of_rank() -> Setup:
    """Returns this rank's versions and settings. Call before the group is made, which sets some."""
    import torch

    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "driver": driver(),
        "settings": given(),
    }


def given() -> dict[str, str]:
    """Returns this rank's settings by name."""
    return {name: os.environ[name][:_MOST_TEXT] for name in SETTINGS if os.environ.get(name)}


def driver() -> str | None:
    """Returns the version of the kernel's NVIDIA driver, or None."""
    line = small_file("/proc/driver/nvidia/version").partition("\n")[0]
    return line.partition("  ")[2].split("  ")[0].strip() or None

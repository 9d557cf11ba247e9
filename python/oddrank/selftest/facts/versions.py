"""Which software a rank runs: another version on one rank breaks jobs, often as a silent hang."""

import ctypes
import os
import platform
import re
from pathlib import Path

from oddrank._version import __version__
from oddrank.bench import setup
from oddrank.selftest.facts.fact import Fact, Here

# Where a container's runtime or its image says which image it is.
_IMAGE_VARIABLES = (
    "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "SLURM_CONTAINER_IMAGE",
    "CONTAINER_IMAGE", "NVIDIA_BUILD_ID",
)  # fmt: skip


def loaded_nccl(here: Here, maps: Path = Path("/proc/self/maps")) -> str | None:
    """Of the libraries that torch has loaded, whatever it was built with; two would be a fault."""
    return ", ".join(_nccl_version(path) for path in _libraries(maps)) or None


def _nccl_paths(here: Here) -> str | None:
    return ", ".join(_libraries(Path("/proc/self/maps"))) or None


def _libraries(maps: Path) -> list[str]:
    text = maps.read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"(/\S*/libnccl\.so[.0-9]*)$", text, re.MULTILINE)
    return list(dict.fromkeys(found))


def _nccl_version(path: str) -> str:
    code = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(code))
    number = code.value  # since 2.9 10,000 a major version, before that 1,000
    major, rest = divmod(number, 10_000 if number >= 10_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _system(here: Here) -> str | None:
    return platform.freedesktop_os_release().get("PRETTY_NAME")


def image(here: Here, podman: Path = Path("/run/.containerenv")) -> str | None:
    """The container's image, where its runtime tells it inside."""
    for name in _IMAGE_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    found = re.search(r'^imageid="?([^"\n]+)', podman.read_text(errors="replace"), re.MULTILINE)
    return found[1] if found else None


FACTS = (
    Fact("python", lambda here: platform.python_version(), "breaks"),
    Fact("torch", lambda here: here.torch.__version__, "breaks"),
    Fact("oddrank", lambda here: __version__, "breaks"),
    Fact("cuda", lambda here: here.torch.version.cuda, "breaks"),
    Fact("nccl", loaded_nccl, "breaks"),
    Fact("nccl_library", _nccl_paths, "fine"),
    Fact("driver", lambda here: setup.driver(), "breaks"),
    Fact("machine", lambda here: platform.machine(), "breaks"),
    Fact("kernel", lambda here: platform.release(), "odd"),
    Fact("system", _system, "odd"),
    Fact("image", image, "odd"),
)

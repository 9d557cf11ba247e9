"""The software of a rank: another version on one rank breaks jobs, often as a silent hang."""

import ctypes
import os
import platform
import re
import subprocess
from pathlib import Path

from oddrank._version import __version__
from oddrank.machine import settings
from oddrank.selftest.facts import Fact, Here

# Variables in which a container's runtime or image names the image.
_IMAGE_VARIABLES = (
    "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "SLURM_CONTAINER_IMAGE",
    "CONTAINER_IMAGE", "NVIDIA_BUILD_ID",
)  # fmt: skip

_PATIENCE = 30.0


def loaded_nccl(here: Here, maps: Path = Path("/proc/self/maps")) -> str | None:
    """Returns the version of the NCCL that torch has loaded; two loaded ones are a fault."""
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
    number = code.value  # major version times 10,000 since 2.9, times 1,000 before
    major, rest = divmod(number, 10_000 if number >= 10_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def image(here: Here, podman: Path = Path("/run/.containerenv")) -> str | None:
    """Returns the container's image if its runtime tells it inside; else None."""
    for name in _IMAGE_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    found = re.search(r'^imageid="?([^"\n]+)', podman.read_text(errors="replace"), re.MULTILINE)
    return found[1] if found else None


SOFTWARE_FACTS = (
    Fact("python", lambda here: platform.python_version(), "breaks"),
    Fact("torch", lambda here: here.torch.__version__, "breaks"),
    Fact("oddrank", lambda here: __version__, "breaks"),
    Fact("cuda", lambda here: here.torch.version.cuda, "breaks"),
    Fact("nccl", loaded_nccl, "breaks"),
    Fact("nccl_library", _nccl_paths, "fine"),
    Fact("driver", lambda here: settings.driver(), "breaks"),
    Fact("machine", lambda here: platform.machine(), "breaks"),
    Fact("kernel", lambda here: platform.release(), "odd"),
    Fact("system", lambda here: platform.freedesktop_os_release().get("PRETTY_NAME"), "odd"),
    Fact("image", image, "odd"),
)


def commit(here: Here) -> str | None:
    """Returns HEAD's commit, None outside a repository. Does not see uncommitted changes."""
    asked = ("git", "rev-parse", "--verify", "HEAD")
    done = subprocess.run(asked, capture_output=True, check=False, text=True, timeout=_PATIENCE)
    return done.stdout.strip() or None


COMMIT_FACTS = (Fact("git_commit", commit, "breaks"),)

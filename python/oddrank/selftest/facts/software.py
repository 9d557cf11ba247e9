"""The software of a rank: another version on one rank breaks jobs, often as a silent hang."""

import ctypes
import os
import platform
import re
from pathlib import Path

from oddrank._version import __version__
from oddrank.machine import settings
from oddrank.selftest.facts import Fact, Here

# Variables in which a container's runtime or image names the image.
_IMAGE_VARIABLES = (
    "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "SLURM_CONTAINER_IMAGE",
    "CONTAINER_IMAGE", "NVIDIA_BUILD_ID",
)  # fmt: skip

_MOST_BYTES = 1 << 22


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


def commit(here: Here, folder: Path | None = None) -> str | None:
    """Returns HEAD's commit, None outside a repository. Does not see uncommitted changes."""
    start = folder or Path.cwd()
    for place in (start, *start.parents):
        mark = place / ".git"
        if mark.is_dir():
            return _head(mark, mark)
        if mark.is_file():  # a further working tree, or a submodule
            own = place / _first_line(mark).removeprefix("gitdir:").strip()
            shared = own / "commondir"
            return _head(own, own / _first_line(shared) if shared.is_file() else own)
    return None


def _head(own: Path, shared: Path) -> str | None:
    head = _first_line(own / "HEAD")
    name = head.removeprefix("ref:").strip()
    if not head.startswith("ref:"):
        return _hash(head)
    if ".." in name or name.startswith("/"):
        return None
    loose = shared / name
    return _hash(_first_line(loose)) if loose.is_file() else _packed(shared / "packed-refs", name)


def _packed(file: Path, name: str) -> str | None:
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines.read(_MOST_BYTES).splitlines():
            found, _, ref = line.partition(" ")
            if ref == name:
                return _hash(found)
    return None


def _first_line(file: Path) -> str:
    with open(file, encoding="utf-8", errors="replace") as text:
        return text.readline(4096).strip()


def _hash(text: str) -> str | None:
    return text if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) else None


COMMIT_FACTS = (Fact("git_commit", commit, "breaks"),)

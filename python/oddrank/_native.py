"""The only importer of the compiled parts: names missing ones and the command to install them."""

import json
import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

from oddrank.errors import MissingPartError, OddrankError

_NCCL = "libnccl.so.2"


@dataclass(frozen=True)
class Part:
    """One compiled module: `module` if it is loaded, else `reason` and `advice`."""

    name: str
    module: ModuleType | None
    reason: str = ""
    advice: str = ""


@lru_cache(maxsize=1)
def build_report() -> dict[str, dict[str, str]]:
    """Returns the build's report on each module; `reason` is empty if it was built."""
    try:
        report: dict[str, dict[str, str]] = import_module("oddrank._build").PARTS
    except ImportError:
        return {}
    return report


def summary() -> list[str]:
    """Returns a line for each module: built, or why not and the remedy."""
    return [
        f"  {name}: {built['reason'] + '. ' + built['advice'] if built['reason'] else 'built'}"
        for name, built in build_report().items()
    ]


def _is_main_interpreter() -> bool:
    with suppress(AttributeError):
        return bool(import_module("_thread")._is_main_interpreter())  # from 3.13 on
    try:
        interpreters = import_module("_xxsubinterpreters")
    except ImportError:
        return True  # this Python has no subinterpreters
    return bool(interpreters.get_current() == interpreters.get_main())


def _load(name: str) -> Part:
    if not _is_main_interpreter():
        # On 3.10 and 3.11 the import below would never return.
        raise RuntimeError("oddrank works in the main interpreter only, not in this subinterpreter")
    try:
        return Part(name, import_module(f"oddrank.{name}"))
    except ImportError as error:
        built = build_report().get(name, {})
        if built.get("reason"):
            return Part(name, None, built["reason"], built["advice"])
        return Part(name, None, str(error), reinstall())


def reinstall() -> str:
    """Returns the command that installs oddrank anew from where it came: no index has it."""
    try:
        told = json.loads(distribution("oddrank").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        told = {}
    source = unquote(str(told.get("url", ""))).removeprefix("file://")
    if version_control := told.get("vcs_info", {}).get("vcs"):
        source = f"{version_control}+{source}"
    place = shlex.quote(source) if source else "CHECKOUT_OR_WHEEL_OF_ODDRANK"
    return f"pip install --no-cache-dir --force-reinstall --no-deps {place}"


@lru_cache(maxsize=1)
def core_part() -> Part:
    """`_core`: always built; if it is missing, the installation is broken."""
    return _load("_core")


def core() -> Any:
    """Returns the module `_core`; MissingPartError if it is missing."""
    return _require(core_part())


@lru_cache(maxsize=1)
def cuda_part() -> Part:
    """`_cuda`: present if it was built, with or without a driver or NCCL on this machine."""
    return _load("_cuda")


def cuda() -> Any:
    """Returns the module `_cuda`; MissingPartError if it is missing."""
    return _require(cuda_part())


def load_nccl() -> dict[str, Any]:
    """Loads NCCL into this process: the copy torch has loaded, if there is one.

    Returns path, version (22809), version_text, source (which step of the search found it),
    missing (newer functions it lacks), mapped (all copies in the process), warning ("" if one).
    OddrankError says where it looked.
    """
    info = _loaded_nccl()
    maps = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    files = [line[line.index("/") :] for line in maps if "/libnccl.so." in line]
    mapped = list(dict.fromkeys(files))
    several = "several NCCLs are loaded in this process, torch may use another than oddrank: "
    warning = several + " ".join(mapped) if len(mapped) > 1 else ""
    return {**info, "mapped": mapped, "warning": warning}


@lru_cache(maxsize=1)
def _loaded_nccl() -> dict[str, Any]:
    file, source = _find_nccl()
    return {**cuda().load_nccl(file, source), "source": source}


def _find_nccl() -> tuple[str, str]:
    """Returns the file to load, which is loaded now, and which step of the search found it."""
    import ctypes  # takes longer than all else here

    def why_not(file: str, mode: int = os.RTLD_NOW) -> str:
        try:
            ctypes.CDLL(file, mode)
        except OSError as error:
            return str(error)
        return ""

    if file := os.environ.get("ODDRANK_NCCL_LIBRARY"):
        if why := why_not(file):
            raise OddrankError(
                f"NCCL was not loaded: ODDRANK_NCCL_LIBRARY: {why}. "
                "Correct the variable or unset it"
            )
        return file, "ODDRANK_NCCL_LIBRARY"
    if not why_not(_NCCL, os.RTLD_NOW | os.RTLD_NOLOAD):
        return _NCCL, "already loaded"
    looked = ["ODDRANK_NCCL_LIBRARY: not set; in this process: not loaded"]
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for source, place in (
        ("nvidia-nccl wheel", nccl_wheel()),
        ("system", _NCCL),
        ("CUDA toolkit", f"{home}/lib64/{_NCCL}"),
    ):
        why = why_not(place) if place else "not installed"
        if not why:
            return place, source
        looked.append(f"{source}: {why}")
    raise OddrankError(
        f"NCCL was not found. Looked at {'; '.join(looked)}. Type: pip install "
        f"nvidia-nccl-cu{cuda().runtime_version()[0]}, or set "
        "ODDRANK_NCCL_LIBRARY=/path/to/libnccl.so.2"
    )


def nccl_wheel() -> str:
    """Returns libnccl.so.2 of the environment's nvidia-nccl wheel; "" if there is none."""
    try:
        spec = find_spec("nvidia.nccl")
    except (ImportError, ValueError):
        return ""
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder) / "lib" / _NCCL
        if file.exists():
            return str(file)
    return ""


@lru_cache(maxsize=1)
def torch_part() -> Part:
    """`_torch`: present when the torch that runs is of the minor version it was built against.

    Imports torch. Checks the version before it loads the module: symbols of another version may be
    missing or, worse, mean something else.
    """
    advice = f"Type: {reinstall()} (offline or with uv add --no-build-isolation)"
    built = build_report().get("_torch", {})
    if built.get("reason"):
        return Part("_torch", None, built["reason"], built["advice"])
    against = built.get("torch", "")
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: one of torch's own libraries is missing
        install = f"Type: pip install 'torch=={minor_version(against)}.*'"
        return Part("_torch", None, f"torch cannot be imported: {error}", install)
    running = str(torch.__version__)
    if minor_version(running) != minor_version(against):
        reason = f"it was built against torch {against or 'unknown'}, but this is torch {running}"
        return Part("_torch", None, reason, advice)
    part = _load("_torch")
    return part if part.module else Part("_torch", None, part.reason, advice)


def torch() -> Any:
    """Returns the module `_torch`; MissingPartError if it is missing."""
    return _require(torch_part())


def collective_recorder() -> str:
    """Returns the recorder of collectives in this process: "_torch", "hooks" (torch's own), or "".
    torch has hooks from 2.14 on. Any build can use them, but they cost more and record less."""
    if torch_part().module:
        return "_torch"
    try:
        c10d = import_module("torch._C._distributed_c10d")
    except ImportError:  # no torch, or one without torch.distributed
        return ""
    return "hooks" if hasattr(c10d.ProcessGroup, "register_pre_hook") else ""


def minor_version(version: str) -> str:
    """Returns the minor version, 2.13 of 2.13.0+cpu, which decides whether a build fits."""
    return ".".join(version.split(".")[:2])


def _require(part: Part) -> Any:
    if part.module is None:
        raise MissingPartError(
            f"oddrank.{part.name} is missing: {part.reason}. {part.advice}".rstrip()
        )
    return part.module

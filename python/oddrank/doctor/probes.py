"""Collects doctor's facts. Asks torch and CUDA in child processes, killed if they hang."""

import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import oddrank
from oddrank import _native, job, launch
from oddrank.collect import children
from oddrank.collect.children import Say, Stop, Task
from oddrank.errors import LaunchError, OddrankError, type_and_text

Facts = dict[str, Any]

# Files of NVIDIA's kernel driver, on Linux and under WSL.
_DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")
# Packages that some options need, and their use.
OPTIONAL = {"jinja2": "--html", "matplotlib": "pictures", "tensorboard": "TensorBoard's events"}
_MOST_ERRORS = 1000  # bytes at the end of a probe's stderr


def examine(seconds: float) -> Facts:
    """Examines everything within `seconds`, and one more if a child has to be killed."""
    answers = ask(["torch", "gpu"], seconds)
    torch = answers["torch"]
    problem = torch.get("problem")
    if problem:  # the probe itself failed: its other facts are unknown
        unasked = {"problem": f"not known, since torch gave no answer ({problem})"}
        torch = {
            "torch": {"problem": problem},
            "_torch": {"present": False, "reason": unasked["problem"], "advice": ""},
            "nccl": unasked,
        }
    documents = (folder for folder in oddrank.__path__ if Path(folder, "SKILL.md").is_file())
    return {
        "oddrank": {
            "version": oddrank.__version__,
            "folder": str(Path(oddrank.__file__).parent),
            "documents": next(documents, ""),
        },
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "parts": {
            "_core": part_facts(_native.core_part()),
            "_cuda": part_facts(_native.cuda_part()),
            "_torch": torch["_torch"],
        },
        "torch": torch["torch"],
        "cuda": answers["gpu"],
        "nccl": torch["nccl"],
        "launch": _launch(),
        "files": _files(),
        "packages": {name: find_spec(name) is not None for name in OPTIONAL},
        # Without a GPU's driver, CUDA parts are not needed.
        "gpu_expected": any(map(os.path.exists, _DRIVER_FILES)),
    }


def _launch() -> Facts:
    try:
        me = launch.current()
    except LaunchError as error:
        return {"problem": str(error)}
    world = os.environ.get("WORLD_SIZE", "1")
    return {
        "launcher": me.launcher,
        "stray": f"WORLD_SIZE={world[:20]}" if me.launcher == "alone" and world != "1" else "",
        "rank": me.rank,
        "world": me.world,
        "node": me.node if me.node_is_known else None,
        "nodes": me.nodes,
        "host": me.host,
        "job": me.job,
        "folder": str(job.job_folder()),
        "folder_problem": _folder_problem(job.job_folder()),
    }


def _folder_problem(folder: Path) -> str:
    """Returns why a folder can't be made or written in; "" if it can. Leaves nothing behind."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there):
            return ""
    except OSError as error:
        return f"{there}: {error.strerror}"


def _files() -> Facts:
    """Opens printflock's lock file, as printflock does, to find its path."""
    core = _native.core_part().module
    if core is None:
        return {"lock": None, "problem": "not known without _core"}
    folders = [str(folder) for folder in job.base_folders()]
    path, refused = core.printing_open(folders, 1.0)
    return {"lock": path or None, "problem": refused}


def torch_probe() -> Facts:
    """Imports torch and `_torch`, and finds the NCCL that a benchmark would use after that."""
    return {"torch": _torch(), "_torch": part_facts(_native.torch_part()), "nccl": _nccl()}


def gpu_probe() -> Facts:
    try:
        cuda = _native.cuda()
        facts: Facts = {"driver": cuda.driver_version(), "runtime": cuda.runtime_version()}
    except OddrankError as error:
        return {"problem": str(error)}
    try:
        facts["gpus"] = cuda.devices()
    except OddrankError as error:
        facts["problem"] = str(error)
    return facts


def part_facts(part: _native.Part) -> Facts:
    """Describes a compiled module: its build, or why it is missing and the command to type."""
    if part.module is None:
        return {"present": False, "reason": part.reason, "advice": part.advice}
    built = Path(str(part.module.__file__)).stat().st_mtime
    sources = Path(oddrank.__file__).parents[2].glob("csrc/**/*.[ch]*")  # editable installs
    newer = next((str(file) for file in sources if file.stat().st_mtime > built), "")
    return {"present": True, "build": dict(part.module.build_info), "newer": newer}


def _torch() -> Facts:
    try:
        facts: Facts = {"version": version("torch")}
    except PackageNotFoundError:
        return {"problem": "not installed. Type: pip install torch"}
    started = time.monotonic()
    try:
        import torch
    except Exception as error:  # a broken installation may raise anything
        return {**facts, "problem": f"import torch fails: {type_and_text(error)}"}
    facts["import_seconds"] = round(time.monotonic() - started, 2)
    facts["version"] = str(torch.__version__)
    facts["cuda"] = torch.version.cuda
    facts["rocm"] = torch.version.hip
    facts["folder"] = str(Path(torch.__file__).parent)
    facts["collectives"] = _native.collective_recorder()
    backends = ("gloo", "nccl", "mpi", "ucc") if torch.distributed.is_available() else ()
    has = {name: getattr(torch.distributed, f"is_{name}_available") for name in backends}
    return {**facts, "backends": [name for name, is_available in has.items() if is_available()]}


def _nccl() -> Facts:
    """Loads NCCL. Called after torch: the loader then takes torch's copy, as in a benchmark."""
    try:
        return _native.load_nccl()
    except OddrankError as error:
        return {"problem": str(error)}


PROBES: dict[str, Callable[[], Facts]] = {"torch": torch_probe, "gpu": gpu_probe}


def ask(names: Iterable[str], seconds: float) -> dict[str, Facts]:
    """Returns each probe's facts; {"problem": ...} if it failed or did not answer in time."""
    stop, answers = Stop(), {}
    with ExitStack() as files:
        errors = {name: files.enter_context(open(os.memfd_create(name), "r+b")) for name in names}
        tasks = [
            Task(name, partial(_tell, PROBES[name]), seconds, file.fileno())
            for name, file in errors.items()
        ]
        with stop.on_signals():
            results = children.run_all(tasks, math.inf, stop)
        if stop.by:
            raise OddrankError(f"{stop.by} ended it")
        for (name, file), result in zip(errors.items(), results, strict=True):
            why = f"the {name} probe: {result.why or 'it ended without an answer'}"
            said = _last_line(file)
            problem = f"{why}; its last words: {said}" if said else why
            answers[name] = result.said[0] if result.said else {"problem": problem}
    return answers


def _last_line(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_ERRORS))
    lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _tell(probe: Callable[[], Facts], say: Say) -> None:
    say(probe())

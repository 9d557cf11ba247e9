"""Collects doctor's facts as data, and makes the rows of its table."""

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import oddrank
from oddrank import _native, job, launch
from oddrank.doctor import probes
from oddrank.doctor.probes import part_facts
from oddrank.errors import LaunchError

Facts = dict[str, Any]
# Part, state, details.
Row = tuple[str, str, str]

COLUMNS = ("part", "state", "")
# Files of NVIDIA's kernel driver, on Linux and under WSL.
_DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")
# Parts that only GPUs need.
_FOR_GPUS = {"_cuda", "CUDA driver", "GPUs", "NCCL"}


def examine(seconds: float, environ: Mapping[str, str] = os.environ) -> Facts:
    """Examines everything within `seconds`, and one more if a child has to be killed."""
    answers = probes.ask(["torch", "gpu"], seconds)
    torch = answers["torch"]
    problem = torch.get("problem")
    if problem:  # the probe itself failed: its other facts are unknown
        unasked = {"problem": f"not known, since torch gave no answer ({problem})"}
        torch = {
            "torch": {"problem": problem},
            "_torch": {"present": False, "reason": unasked["problem"], "advice": ""},
            "nccl": unasked,
        }
    return {
        "oddrank": {
            "version": oddrank.__version__,
            "folder": str(Path(oddrank.__file__).parent),
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
        "launch": _launch(environ),
        "files": _files(environ),
        "gpu_expected": _has_gpu(),
    }


def _has_gpu() -> bool:
    """Returns whether this machine has a GPU's driver: without one, CUDA parts are not needed."""
    return any(map(os.path.exists, _DRIVER_FILES))


def works(data: Facts) -> bool:
    """Returns whether `_core` works; without it nothing does."""
    return bool(data["parts"]["_core"]["present"])


def rows(data: Facts) -> Iterator[Row]:
    """Yields the rows of the table. The row of a missing part says why, and what to type."""
    for part, state, text in _all_rows(data):
        if part in _FOR_GPUS and state in ("missing", "unknown") and not data["gpu_expected"]:
            yield part, "not needed", f"no GPU here ({text.partition('. ')[0]})"
        else:
            yield part, state, text


def _all_rows(data: Facts) -> Iterator[Row]:
    yield "oddrank", "ok", f"{data['oddrank']['version']} in {data['oddrank']['folder']}"
    yield "Python", "ok", f"{data['python']['version']}, {data['python']['executable']}"
    for name, part in data["parts"].items():
        yield _part_row(name, part)
    yield _torch_row(data["torch"])
    yield from _cuda_rows(data["cuda"])
    yield _nccl_row(data["nccl"])
    if data["nccl"].get("warning"):
        yield "NCCL", "warning", data["nccl"]["warning"]
    yield from _launch_rows(data["launch"])
    yield _files_row(data["files"])


def _part_row(name: str, part: Facts) -> Row:
    if not part["present"]:
        return name, "missing", f"{part['reason']}. {part['advice']}".rstrip(". ")
    build = part["build"]
    known = [f"{build['compiler']} {build['flags']}"]
    if "nvcc" in build:
        known += [build["nvcc"], f"nccl.h {build['nccl_header']}", f"sm {build['architectures']}"]
    if "torch" in build:
        known.append(f"for torch {build['torch']}")
    return name, "ok", ", ".join(known)


def _torch_row(torch: Facts) -> Row:
    known = torch.get("version", "")
    if torch.get("problem"):
        return "torch", "missing", ", ".join(filter(None, [known, torch["problem"]]))
    cuda = f"CUDA {torch['cuda']}" if torch["cuda"] else "CPU build"
    backends = " ".join(torch["backends"]) or "none"
    took = f"imported in {torch['import_seconds']} s"
    return "torch", "ok", f"{known}, {cuda}, backends {backends}, {took}, {torch['folder']}"


def _cuda_rows(cuda: Facts) -> Iterator[Row]:
    problem = cuda.get("problem", "")
    if "runtime" in cuda:
        yield "CUDA runtime", "ok", f"{_dotted(cuda['runtime'])}, inside _cuda"
        if cuda["driver"]:
            yield "CUDA driver", "ok", f"up to CUDA {_dotted(cuda['driver'])}"
        else:
            yield "CUDA driver", "missing", problem
            return
    if problem:
        yield "GPUs", "unknown", problem
        return
    if not cuda["gpus"]:
        yield "GPUs", "missing", "the driver sees none: check nvidia-smi -L, CUDA_VISIBLE_DEVICES"
    for gpu in cuda["gpus"]:
        major, minor = gpu["compute_capability"]
        memory = f"{gpu['memory_bytes'] / 2**30:.1f} GiB"
        said = f"{gpu['name']}, {memory}, sm_{major}{minor}, {gpu['uuid']}, {gpu['pci_bus_id']}"
        yield f"GPU {gpu['index']}", "ok", said


def _nccl_row(nccl: Facts) -> Row:
    if nccl.get("problem"):
        return "NCCL", "missing", nccl["problem"]
    return "NCCL", "ok", f"{nccl['version_text']}, {nccl['path']} ({nccl['source']})"


def _launch(environ: Mapping[str, str]) -> Facts:
    try:
        me = launch.current(environ)
    except LaunchError as error:
        return {"problem": str(error)}
    return {
        "launcher": me.launcher,
        "rank": me.rank,
        "world": me.world,
        "node": me.node,
        "nodes": me.nodes,
        "host": me.host,
        "job": me.job,
        "folder": str(launch.job_folder(me, environ)),
    }


def _launch_rows(me: Facts) -> Iterator[Row]:
    if "problem" in me:
        yield "launcher", "wrong", me["problem"]
        return
    where = f"rank {me['rank']} of {me['world']}, node {me['node']} of {me['nodes']} ({me['host']})"
    yield "launcher", "ok", f"{me['launcher']}, {where}"
    yield "job folder", "ok", me["folder"]


def _files(environ: Mapping[str, str]) -> Facts:
    """Opens printflock's lock file, as printflock does, to find its path."""
    core = _native.core_part().module
    if core is None:
        return {"lock": None, "problem": "not known without _core"}
    folders = [str(folder) for folder in job.base_folders(environ)]
    path, refused = core.printing_open(folders, 1.0)
    return {"lock": path or None, "problem": refused}


def _files_row(files: Facts) -> Row:
    if not files["problem"]:
        return "lock file", "ok", files["lock"]
    place = f"{files['lock']} is used" if files["lock"] else "lines of other processes may mix in"
    return "lock file", "warning", f"{files['problem']}; {place}"


def _dotted(version: list[int]) -> str:
    return ".".join(map(str, version))

"""What only importing torch or calling CUDA can tell. Runs in a child process: both can hang."""

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError

Facts = dict[str, Any]


def torch_probe() -> Facts:
    """torch as it is imported, `_torch` beside it, and the NCCL that a benchmark would then use."""
    return {"torch": _torch(), "_torch": part_facts(_native.torch_part()), "nccl": _nccl()}


def gpu_probe() -> Facts:
    """CUDA's versions and the GPUs."""
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
    """One compiled module: there, or why not and what to type."""
    if part.module is None:
        return {"present": False, "reason": part.reason, "advice": part.advice}
    return {"present": True, "build": dict(part.module.build_info)}


def _torch() -> Facts:
    try:
        facts: Facts = {"version": version("torch")}
    except PackageNotFoundError:
        return {"problem": "not installed. Type: pip install 'oddrank[torch]'"}
    started = time.monotonic()
    try:
        import torch
    except Exception as error:  # whatever a broken installation raises is the answer
        return {**facts, "problem": f"import torch fails: {type(error).__name__}: {error}"}
    facts["import_seconds"] = round(time.monotonic() - started, 2)
    facts["version"] = str(torch.__version__)
    facts["cuda"] = torch.version.cuda
    facts["folder"] = str(Path(torch.__file__).parent)
    distributed = torch.distributed
    facts["backends"] = (
        [
            name
            for name in ("gloo", "nccl", "mpi", "ucc")
            if getattr(distributed, f"is_{name}_available")()
        ]
        if distributed.is_available()
        else []
    )
    return facts


def _nccl() -> Facts:
    """After torch: the loader then takes torch's copy, as it does in a benchmark."""
    try:
        return _native.load_nccl()
    except OddrankError as error:
        return {"problem": str(error)}


PROBES: dict[str, Callable[[], Facts]] = {"torch": torch_probe, "gpu": gpu_probe}


def main(name: str) -> None:
    """The child's whole life: one JSON object as the last line of stdout."""
    facts = PROBES[name]()
    sys.stdout.write("\n" + json.dumps(facts) + "\n")
    sys.stdout.flush()
    os._exit(0)  # what libraries print as they end would come after it

"""What every rank runs on, compared across ranks: versions, /dev/shm, limits."""

import os
import platform
import resource
import statistics
from collections.abc import Mapping
from typing import Any

from oddrank._version import __version__
from oddrank.bench import place, setup
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest.choice import Options
from oddrank.selftest.findings.environment import deviates, no_majority

# Limit -> what it is called in a shell.
_LIMITS = {
    "nofile": resource.RLIMIT_NOFILE,
    "memlock": resource.RLIMIT_MEMLOCK,
    "stack": resource.RLIMIT_STACK,
    "core": resource.RLIMIT_CORE,
}
# Compared: a difference breaks jobs, or makes them odd. What is not here is only shown.
_VERSIONS = ("python", "torch", "oddrank", "cuda", "nccl", "driver", "machine")
_NEAR = 0.1
_SETTINGS = ("shm_bytes", "gpus", *_LIMITS)


def _measure(context: Context) -> dict[str, Any]:
    context.step("import torch")
    import torch

    context.step("read versions and limits")
    facts: dict[str, Any] = {
        "hostname": context.launch.host,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "oddrank": __version__,
        "cuda": torch.version.cuda,
        "nccl": _nccl(torch),
        "driver": setup.driver(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        **place.facts(context.launch),
        "shm_bytes": None,
        "shm_free": None,
    }
    try:
        shm = os.statvfs("/dev/shm")
        facts["shm_bytes"] = shm.f_blocks * shm.f_frsize
        facts["shm_free"] = shm.f_bavail * shm.f_frsize
    except OSError:
        pass  # a container without it: shown as none, and compared
    for name, limit in _LIMITS.items():
        facts[name] = "/".join(_limit(value) for value in resource.getrlimit(limit))
    return facts


def _nccl(torch: Any) -> str | None:
    if not torch.cuda.is_available():
        return None
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _rounded(sizes: Mapping[int, Any]) -> dict[int, Any]:
    """Sizes near the median as the median: half of the memory differs by pages on equal hosts."""
    known = [size for size in sizes.values() if isinstance(size, int)]
    middle = statistics.median_low(known) if known else 0
    return {
        rank: middle if isinstance(size, int) and abs(size - middle) <= _NEAR * middle else size
        for rank, size in sizes.items()
    }


def _judge(rounds: Rounds) -> list[Finding]:
    facts = rounds.of("environment")
    found = []
    for name in (*_VERSIONS, *_SETTINGS):
        seen = {rank: values.get(name) for rank, values in facts.items()}
        groups = _groups(_rounded(seen) if name == "shm_bytes" else seen)
        if len(groups) == 1:
            continue
        common, ranks = max(groups.items(), key=lambda group: len(group[1]))
        if 2 * len(ranks) <= len(facts):
            found.append(no_majority(rounds, name, groups))
            continue
        found += [
            deviates(rounds, name, others, value, common, breaks=name in _VERSIONS)
            for value, others in groups.items()
            if value != common
        ]
    return found


def _groups(values: dict[int, Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(value, []).append(rank)
    return groups


def stage(options: Options) -> Stage:
    # Long: many ranks import torch from one busy file system.
    return Stage("environment", 300, _measure, _judge)

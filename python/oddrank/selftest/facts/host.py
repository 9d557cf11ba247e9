"""The facts of a rank's host: processors, memory, limits, and where the rank may run."""

import os
import re
import resource
from pathlib import Path

from oddrank.machine import settings
from oddrank.machine.device import cgroup_cpus, cgroup_memory
from oddrank.selftest.facts.fact import Fact, Here

_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
# Firmware and kernel reserve a little, differently. A missing memory module is more than that.
_NEAR = 0.02

# By default /dev/shm has half of the memory, which differs a little between equal hosts.
_NEAR_LIMIT = 0.1
_SHM = "/dev/shm"


def governor(here: Here, root: Path = _CPUS) -> str | None:
    """Returns the governor of this rank's processors; None if the kernel does not scale them."""
    found = set()
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            text = (root / f"cpu{cpu}" / "cpufreq" / "scaling_governor").read_text(encoding="ascii")
        except FileNotFoundError:
            continue
        found.add(text.strip())
    return ", ".join(sorted(found)) or None


def _memory(here: Here) -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        return int(file.readline().split()[1]) << 10


def numa_nodes(cpus: set[int], root: Path = _NODES) -> dict[str, str]:
    """Returns the host's NUMA nodes with processors: "used" if this rank may run there."""
    nodes = {}
    for folder in root.glob("node[0-9]*"):
        held = _listed((folder / "cpulist").read_text(encoding="ascii").strip())
        if held:  # a node may have memory alone
            nodes[folder.name.removeprefix("node")] = "used" if held & cpus else "not used"
    return nodes


def _listed(text: str) -> set[int]:
    """Parses `0-3,8` into numbers."""
    numbers: set[int] = set()
    for low, high in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def _settings(here: Here) -> dict[str, str]:
    return {name: os.environ[name] for name in settings.SETTINGS if os.environ.get(name)}


FACTS = (
    Fact("hostname", lambda here: here.launch.host, "fine"),
    Fact("cpus", lambda here: os.cpu_count(), "odd"),
    Fact("memory_bytes", _memory, "odd", near=_NEAR),
    Fact("usable_cpus", lambda here: len(os.sched_getaffinity(0)), "fine"),
    Fact("numa", lambda here: numa_nodes(os.sched_getaffinity(0)), "fine"),
    Fact("governor", governor, "odd"),
    Fact("settings", _settings, "odd", breaking=settings.MUST_AGREE, free=settings.MAY_DIFFER),
)


def _shm_bytes(here: Here) -> int:
    shm = os.statvfs(_SHM)
    return shm.f_blocks * shm.f_frsize


def _shm_free(here: Here) -> int:
    shm = os.statvfs(_SHM)
    return shm.f_bavail * shm.f_frsize


def _shm_writable(here: Here) -> bool:
    """Returns False on a read-only mount, too, even for the user root."""
    return os.access(_SHM, os.W_OK)


def _limit(name: str, number: int) -> Fact:
    """Makes the fact "soft/hard" of a resource limit, with ulimit's word for infinity."""

    def read(here: Here) -> str:
        return "/".join(_said(value) for value in resource.getrlimit(number))

    return Fact(name, read, "odd")


def _said(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


LIMITS = (
    Fact("shm_bytes", _shm_bytes, "odd", near=_NEAR_LIMIT),
    Fact("shm_free", _shm_free, "fine"),
    Fact("shm_writable", _shm_writable, "fine"),
    _limit("nofile", resource.RLIMIT_NOFILE),
    _limit("memlock", resource.RLIMIT_MEMLOCK),
    _limit("stack", resource.RLIMIT_STACK),
    _limit("core", resource.RLIMIT_CORE),
    Fact("cgroup_cpus", lambda here: cgroup_cpus(), "odd"),
    Fact("cgroup_memory", lambda here: cgroup_memory(), "odd", near=_NEAR_LIMIT),
)

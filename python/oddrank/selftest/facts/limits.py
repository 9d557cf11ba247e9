"""How much of everything a rank may take: /dev/shm, a shell's limits, those of its cgroups."""

import os
import resource

from oddrank.bench.memory import cgroup_cpus, cgroup_memory
from oddrank.selftest.facts.fact import Fact, Here

# On equal hosts half of the memory differs by pages.
_NEAR = 0.1
_SHM = "/dev/shm"


def _shm_bytes(here: Here) -> int:
    shm = os.statvfs(_SHM)
    return shm.f_blocks * shm.f_frsize


def _shm_free(here: Here) -> int:
    shm = os.statvfs(_SHM)
    return shm.f_bavail * shm.f_frsize


def _limit(name: str, number: int) -> Fact:
    """Soft and hard, as a shell's ulimit calls it."""

    def read(here: Here) -> str:
        return "/".join(_said(value) for value in resource.getrlimit(number))

    return Fact(name, read, "odd")


def _said(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


FACTS = (
    Fact("shm_bytes", _shm_bytes, "odd", near=_NEAR),
    Fact("shm_free", _shm_free, "fine"),
    _limit("nofile", resource.RLIMIT_NOFILE),
    _limit("memlock", resource.RLIMIT_MEMLOCK),
    _limit("stack", resource.RLIMIT_STACK),
    _limit("core", resource.RLIMIT_CORE),
    Fact("cgroup_cpus", lambda here: cgroup_cpus(), "odd"),
    Fact("cgroup_memory", lambda here: cgroup_memory(), "odd", near=_NEAR),
)

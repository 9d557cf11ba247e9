"""The host that a rank is on: processors, memory, and where the rank may run."""

import os
import re
from pathlib import Path

from oddrank.bench import setup
from oddrank.selftest.facts.fact import Fact, Here

_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
# Firmware and kernel keep a little for themselves; a memory module that is lost is more.
_NEAR = 0.02


def governor(here: Here, root: Path = _CPUS) -> str | None:
    """Of the processors that this rank may use; None where the kernel does not scale them."""
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
    """The host's NUMA nodes: "used" where this rank may run there, else "not used"."""
    nodes = {}
    for folder in root.glob("node[0-9]*"):
        held = _listed((folder / "cpulist").read_text(encoding="ascii").strip())
        if held:  # a node may have memory alone
            nodes[folder.name.removeprefix("node")] = "used" if held & cpus else "not used"
    return nodes


def _listed(text: str) -> set[int]:
    """`0-3,8` as numbers."""
    numbers: set[int] = set()
    for low, high in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def _settings(here: Here) -> dict[str, str]:
    return {name: os.environ[name] for name in setup.SETTINGS if os.environ.get(name)}


FACTS = (
    Fact("hostname", lambda here: here.launch.host, "fine"),
    Fact("cpus", lambda here: os.cpu_count(), "odd"),
    Fact("memory_bytes", _memory, "odd", near=_NEAR),
    Fact("usable_cpus", lambda here: len(os.sched_getaffinity(0)), "fine"),
    Fact("numa", lambda here: numa_nodes(os.sched_getaffinity(0)), "fine"),
    Fact("governor", governor, "odd"),
    Fact("settings", _settings, "odd", breaking=setup.MUST_AGREE, free=setup.MAY_DIFFER),
)

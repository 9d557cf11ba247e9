"""The facts that ranks are compared by: how one is read, and what a difference in it means.

Facts of a rank's host: processors, memory, limits, GPUs, network and software.
"""

import ctypes
import json
import os
import platform
import re
import resource
import shutil
import socket
import statistics
import subprocess
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oddrank import _native
from oddrank._version import __version__
from oddrank.control.stages import RunState
from oddrank.finding import grouped
from oddrank.launch import Launch
from oddrank.machine import is_allowed, placement, small_file
from oddrank.machine.device import GpuFacts, cgroup_cpus, cgroup_memory, gpu_index
from oddrank.machine.settings import MAY_DIFFER, MUST_AGREE, driver, given
from oddrank.peers import Majority, majority

# Neither healthy nor a fault: shown, never compared.
NOT_READABLE = "not readable"
_MOST_TEXT = 200
_MOST_ENTRIES = 128


@dataclass(frozen=True)
class Here:
    """The sources of facts, besides the kernel's files.

    master: rank 0's address, "" if all ranks share a host. gpus: this rank's machine.device.facts.
    """

    launch: Launch
    torch: Any
    master: str
    gpus: GpuFacts


class Facts(GpuFacts, total=False):
    """A rank's facts that code reads by name, besides the table's; each may be NOT_READABLE."""

    visible_gpus: str | None
    gpu_uuid: str | None
    gpu_bus: str | None
    gpu_numa: int | str | None
    numa: dict[str, str] | str
    nofile: str
    shm_free: int | str
    shm_writable: bool | str
    nccl_interfaces: str | None


@dataclass(frozen=True)
class Fact:
    """A row of the table.

    read: returns a text, a number, None (there is none) or a flat mapping of these, whose entries
    are compared one by one. differs: what a difference means: it breaks jobs, is odd, or is fine
    and only shown. near: numbers within this share of the median are alike. breaking, free: a
    mapping's entries that break jobs, and those that are only shown.
    """

    name: str
    read: Callable[[Here], Any]
    differs: Literal["breaks", "odd", "fine"]
    near: float = 0.0
    breaking: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()

    def value(self, here: Here) -> Any:
        """Reads the fact. An error must not cost the rank its other facts."""
        try:
            return _cut(self.read(here))
        except FileNotFoundError:
            return None
        except Exception:
            return NOT_READABLE

    def breaks(self, entry: str = "") -> bool:
        return self.differs == "breaks" or entry in self.breaking


def _cut(value: Any) -> Any:
    """Limits the lengths of texts and mappings: strangers may have written them."""
    if isinstance(value, str):
        return value[:_MOST_TEXT]
    if isinstance(value, Mapping):
        return {str(key): _cut(value[key]) for key in sorted(value)[:_MOST_ENTRIES]}
    return value


def results(run: RunState) -> Mapping[int, Facts]:
    return run.of("environment")


_MOST = 2 / 3
# From three of four on: beyond doubt.
_NEARLY_ALL = 3 / 4
_ROUNDING = 1e-9

Group = tuple[Any, tuple[int, ...]]  # a value, and the ranks that have it


@dataclass(frozen=True)
class Difference:
    """A fact in which ranks differ. voters: nodes, or ranks of a single node."""

    name: str
    breaks: bool
    most: Majority[int, Hashable]
    voters: Literal["nodes", "ranks"]

    @property
    def groups(self) -> tuple[Group, ...]:
        """Each value with its ranks; by votes, the most first."""
        return self.most.groups

    @property
    def common(self) -> Group | None:
        """The value of most ranks, and those ranks."""
        return self.groups[0] if self.most.is_enough else None

    @property
    def share(self) -> float:
        """The first value's share of the votes."""
        return self.most.count / self.most.votes

    @property
    def is_clear(self) -> bool:
        return self.share > _NEARLY_ALL - _ROUNDING


def compare(
    table: Iterable[Fact], ranks: Mapping[int, Mapping[str, object]], nodes: Sequence[Sequence[int]]
) -> list[Difference]:
    """Returns the facts that differ. ranks: rank -> its facts. Values not readable have no vote."""
    votes = {rank: 1 / len(node) if len(nodes) > 1 else 1.0 for node in nodes for rank in node}
    voters: Literal["nodes", "ranks"] = "nodes" if len(nodes) > 1 else "ranks"
    found = []
    for fact in table:
        if fact.differs != "fine":
            seen = {rank: facts.get(fact.name, NOT_READABLE) for rank, facts in ranks.items()}
            for name, breaks, values in _entries(fact, seen):
                alike = _near(values, fact.near) if fact.near else values
                most = majority(dict(sorted(alike.items())), least=_MOST - _ROUNDING, weights=votes)
                if most.deviants:
                    found.append(Difference(name, breaks, most, voters))
    return found


def group(values: Mapping[int, Any]) -> list[Group]:
    """Returns each value with its ranks, in the order of `values`."""
    groups = grouped((_plain(value), rank) for rank, value in values.items())
    return [(values[who[0]], tuple(sorted(who))) for who in groups.values()]


def not_readable(ranks: Mapping[int, Mapping[str, object]]) -> dict[str, list[int]]:
    """Returns fact -> the ranks that could not read it."""
    every = ((name, rank, facts[name]) for rank, facts in ranks.items() for name in facts)
    return grouped((name, rank) for name, rank, value in every if value == NOT_READABLE)


def _entries(
    fact: Fact, seen: Mapping[int, Any]
) -> Iterator[tuple[str, bool, Mapping[int, Hashable]]]:
    """Yields (name, breaks, values) of a fact that differs, or of each entry of a mapping."""
    known = {rank: value for rank, value in seen.items() if value != NOT_READABLE}
    first = next(iter(known.values()), None)
    if all(value == first for value in known.values()):
        return
    if not any(isinstance(value, Mapping) for value in known.values()):
        yield fact.name, fact.breaks(), {rank: _plain(value) for rank, value in known.items()}
        return
    mappings = {rank: v if isinstance(v, Mapping) else {} for rank, v in known.items()}
    for entry in sorted({entry for value in mappings.values() for entry in value} - fact.free):
        values = {rank: _plain(value.get(entry)) for rank, value in mappings.items()}
        yield f"{fact.name}.{entry}", fact.breaks(entry), values


def _plain(value: Any) -> Hashable:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, sort_keys=True)


def _near(values: Mapping[int, Hashable], near: float) -> Mapping[int, Hashable]:
    """Returns the values with numbers near their median replaced by it."""
    known = [value for value in values.values() if isinstance(value, int | float)]
    middle = statistics.median_low(known) if known else 0
    return {
        rank: middle
        if isinstance(value, int | float) and abs(value - middle) <= near * abs(middle)
        else value
        for rank, value in values.items()
    }


def shared_gpus(
    ranks: Mapping[int, Facts], nodes: Sequence[Sequence[int]]
) -> Iterator[tuple[str, list[int]]]:
    """Yields GPUs that several ranks of a node would take, with these ranks.
    Yields none if on every node all ranks share one GPU: a trial on a machine with one GPU."""
    users: list[dict[str, list[int]]] = []
    for node in nodes:
        users.append({})
        for rank in node:
            gpu = ranks[rank].get("gpu_uuid") if rank in ranks else None
            if isinstance(gpu, str) and gpu != NOT_READABLE:
                users[-1].setdefault(gpu, []).append(rank)
    if all(len(gpus) <= 1 < len(node) for gpus, node in zip(users, nodes, strict=True)):
        return
    for gpus in users:
        yield from ((gpu, those) for gpu, those in gpus.items() if len(those) > 1)


_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_NET = Path("/sys/class/net")
_INFINIBAND = Path("/sys/class/infiniband")
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
        held = placement.numbers((folder / "cpulist").read_text(encoding="ascii"))
        if held:  # a node may have memory alone
            nodes[folder.name.removeprefix("node")] = "used" if held & cpus else "not used"
    return nodes


HOST_FACTS = (
    Fact("hostname", lambda here: here.launch.host, "fine"),
    Fact("cpus", lambda here: os.cpu_count(), "odd"),
    Fact("memory_bytes", _memory, "odd", near=_NEAR),
    Fact("usable_cpus", lambda here: len(os.sched_getaffinity(0)), "fine"),
    Fact("numa", lambda here: numa_nodes(os.sched_getaffinity(0)), "fine"),
    Fact("governor", governor, "odd"),
    Fact("settings", lambda here: given(), "odd", breaking=MUST_AGREE, free=MAY_DIFFER),
)


def _shm() -> os.statvfs_result:
    return os.statvfs(_SHM)


def _shm_writable(here: Here) -> bool:
    """Returns False on a read-only mount, too, even for the user root."""
    return os.access(_SHM, os.W_OK)


def _limit(name: str, number: int) -> Fact:
    """Makes the fact "soft/hard" of a resource limit, with ulimit's word for infinity."""
    words = {resource.RLIM_INFINITY: "unlimited"}
    return Fact(
        name, lambda here: "/".join(words.get(n, str(n)) for n in resource.getrlimit(number)), "odd"
    )


LIMIT_FACTS = (
    Fact("shm_bytes", lambda here: _shm().f_blocks * _shm().f_frsize, "odd", near=_NEAR_LIMIT),
    Fact("shm_free", lambda here: _shm().f_bavail * _shm().f_frsize, "fine"),
    Fact("shm_writable", _shm_writable, "fine"),
    _limit("nofile", resource.RLIMIT_NOFILE),
    _limit("memlock", resource.RLIMIT_MEMLOCK),
    _limit("stack", resource.RLIMIT_STACK),
    _limit("core", resource.RLIMIT_CORE),
    Fact("cgroup_cpus", lambda here: cgroup_cpus(), "odd"),
    Fact("cgroup_memory", lambda here: cgroup_memory(), "odd", near=_NEAR_LIMIT),
)


def _own_gpu(here: Here) -> Any:
    """Returns CUDA's properties of this rank's GPU; None if there are too few GPUs."""
    index = gpu_index(here.launch)
    if index >= here.gpus["gpus"]:
        return None
    return here.torch.cuda.get_device_properties(index)


def _gpu_uuid(here: Here) -> str | None:
    """Returns the GPU's UUID. Slices share it: for them returns the name of the slice."""
    own = _own_gpu(here)
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    index = gpu_index(here.launch) if own is not None else 0
    if own is not None and index < len(listed) and listed[index].startswith("MIG-"):
        return listed[index]
    return None if own is None else str(own.uuid)


def _gpu_bus(here: Here) -> str | None:
    """Returns the GPU's PCI address as the kernel writes it: 0000:1b:00.0."""
    own = _own_gpu(here)
    if own is None:
        return None
    return f"{own.pci_domain_id:04x}:{own.pci_bus_id:02x}:{own.pci_device_id:02x}.0"


def gpu_numa_node(here: Here) -> int | None:
    """Returns the NUMA node of the GPU; None if the kernel does not know it."""
    bus = _gpu_bus(here)
    return None if bus is None else placement.numa_node(bus)


GPU_FACTS = (
    Fact("gpus", lambda here: here.gpus["gpus"], "odd"),
    Fact("gpu", lambda here: here.gpus["gpu"], "odd"),
    Fact("visible_gpus", lambda here: os.environ.get("CUDA_VISIBLE_DEVICES"), "fine"),
    Fact("gpu_uuid", _gpu_uuid, "fine"),
    Fact("gpu_bus", _gpu_bus, "fine"),
    Fact("gpu_numa", gpu_numa_node, "fine"),
)


def _interface(here: Here) -> str | None:
    """Returns gloo's interface: the one asked for, else the one that leads to rank 0."""
    asked = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if asked or not here.master:
        return asked or None
    return _native.core().control_interface_towards(here.master) or None


def mtu(here: Here, root: Path = _NET) -> int | None:
    name = _interface(here)
    if not name or "/" in name or name.startswith("."):
        return None
    return int((root / name / "mtu").read_text(encoding="ascii"))


def nccl_interfaces(here: Here) -> str | None:
    """Returns interfaces that NCCL_SOCKET_IFNAME allows, "" for none; None if it is not set."""
    listed = os.environ.get("NCCL_SOCKET_IFNAME", "")
    if len(listed) < 2:  # NCCL ignores a single character
        return None
    return ", ".join(name for _, name in socket.if_nameindex() if is_allowed(name, listed))


def cards(here: Here, root: Path = _NET) -> str | None:
    """Counts network cards by state and speed: their names may differ on equal hosts."""
    found: Counter[str] = Counter()
    for folder in sorted(root.iterdir()):
        if os.path.exists(folder / "device"):
            found[f"{small_file(folder / 'operstate')} ({_card_speed(folder)})"] += 1
    return ", ".join(f"{count} {card}" for card, count in sorted(found.items())) or None


def _card_speed(folder: Path) -> str:
    text = small_file(folder / "speed")  # in Mb/s
    known = re.fullmatch(r"[0-9]{1,9}", text)
    return f"{int(text) / 1000:g} Gb/s" if known else "speed not readable"


def ports(here: Here, root: Path = _INFINIBAND) -> dict[str, str]:
    """Returns RDMA port -> its link: mlx5_0/1 -> ACTIVE, 400 Gb/sec (4X NDR), InfiniBand."""
    found = {}
    for port in root.glob("*/ports/*"):
        state = (port / "state").read_text(encoding="ascii", errors="replace").rpartition(":")[2]
        told = state.strip(), small_file(port / "rate"), small_file(port / "link_layer")
        found[f"{port.parents[1].name}/{port.name}"] = ", ".join(filter(None, told))
    return found


NETWORK_FACTS = (
    Fact("network_cards", cards, "odd"),
    Fact("interface", _interface, "fine"),
    Fact("mtu", mtu, "odd"),
    Fact("nccl_interfaces", nccl_interfaces, "fine"),
    # One host with a port fewer hangs jobs silently (NVIDIA/nccl#2428).
    Fact("rdma_ports", ports, "breaks"),
)

# Variables in which a container's runtime or image names the image.
_IMAGE_VARIABLES = (
    "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "SLURM_CONTAINER_IMAGE",
    "CONTAINER_IMAGE", "NVIDIA_BUILD_ID",
)  # fmt: skip

_GIT_SECONDS = 20.0  # git may wait for a file system that does not answer

_MAPS = Path("/proc/self/maps")


def loaded_nccl(here: Here, maps: Path = _MAPS) -> str | None:
    """Returns the version of the NCCL that torch has loaded; two loaded ones are a fault."""
    return ", ".join(_nccl_version(path) for path in _libraries(maps)) or None


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
    Fact("nccl_library", lambda here: ", ".join(_libraries(_MAPS)) or None, "fine"),
    Fact("driver", lambda here: driver(), "breaks"),
    Fact("machine", lambda here: platform.machine(), "breaks"),
    Fact("kernel", lambda here: platform.release(), "odd"),
    Fact("system", lambda here: platform.freedesktop_os_release().get("PRETTY_NAME"), "odd"),
    Fact("image", image, "odd"),
)


def commit(here: Here, folder: Path | None = None) -> str | None:
    """Returns HEAD's commit, None outside a repository. Does not see uncommitted changes."""
    start = folder or Path.cwd()
    if not any((place / ".git").exists() for place in (start, *start.parents)):
        return None
    if not shutil.which("git"):
        return NOT_READABLE
    # In a container the repository may belong to a user of the host.
    asked = ("git", "-c", "safe.directory=*", "rev-parse", "--quiet", "--verify", "HEAD")
    said = subprocess.run(
        asked, cwd=start, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=_GIT_SECONDS,
    )  # fmt: skip
    if said.returncode == 1 and not said.stderr:  # there is no commit yet
        return None
    return NOT_READABLE if said.returncode else said.stdout.strip()


COMMIT_FACTS = (Fact("git_commit", commit, "breaks"),)

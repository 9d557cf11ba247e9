"""The facts of a rank's host: processors, memory, limits, GPUs and network."""

import ctypes
import os
import platform
import re
import resource
import socket
from collections import Counter
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank._version import __version__
from oddrank.machine import is_allowed, placement, settings, small_file
from oddrank.machine.device import cgroup_cpus, cgroup_memory, gpu_index
from oddrank.selftest.facts import Fact, Here

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


def _settings(here: Here) -> dict[str, str]:
    return {name: os.environ[name] for name in settings.SETTINGS if os.environ.get(name)}


HOST_FACTS = (
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


LIMIT_FACTS = (
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


def _own_gpu(here: Here) -> Any:
    """Returns CUDA's properties of this rank's GPU; None if there are too few GPUs."""
    index = gpu_index(here.launch)
    if index >= here.gpus["gpus"]:
        return None
    return here.torch.cuda.get_device_properties(index)


def _gpu_uuid(here: Here) -> str | None:
    """Returns the GPU's UUID. Slices share it: for them returns the name of the slice."""
    own = _own_gpu(here)
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    index = gpu_index(here.launch) if own is not None else 0
    if own is not None and index < len(given) and given[index].startswith("MIG-"):
        return given[index]
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
    return (
        f"{int(text) / 1000:g} Gb/s" if re.fullmatch(r"[0-9]{1,9}", text) else "speed not readable"
    )


def ports(here: Here, root: Path = _INFINIBAND) -> dict[str, str]:
    """Returns RDMA port -> its link: mlx5_0/1 -> ACTIVE, 400 Gb/sec (4X NDR), InfiniBand."""
    return {
        f"{port.parents[1].name}/{port.name}": ", ".join(
            filter(
                None,
                (_port_state(port), small_file(port / "rate"), small_file(port / "link_layer")),
            )
        )
        for port in root.glob("*/ports/*")
    }


def _port_state(port: Path) -> str:
    return (port / "state").read_text(encoding="ascii", errors="replace").rpartition(":")[2].strip()


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

"""A rank's GPU: the same functions as for the host."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oddrank import _native
from oddrank.bench.place import gpu_index
from oddrank.errors import OddrankError
from oddrank.selftest.probes import gemm, prints

if TYPE_CHECKING:
    from oddrank.launch import Launch

# All of them: nobody else uses it.
A_TURN = 1 << 30
# Metric -> the name that the native part has for it.
_MEMORY = {"gpu_read": "read", "gpu_write": "write", "gpu_copy": "copy"}
_TRANSFERS = {"pcie_to_device": "to_device", "pcie_to_host": "to_host"}
_MOVED = {"read": 1, "write": 1, "copy": 2, "to_device": 1, "to_host": 1}
# Far beyond any L2 cache, and a small part of the memory.
_MOST_BYTES, _SHARE = 2 << 30, 16
_TRANSFER_BYTES = 256 << 20


def kind(launch: "Launch") -> str:
    """The GPU's model or its MIG profile, and its power cap: who may draw less is slower."""
    gpu = _gpu(launch)
    told = _asked(gpu)
    name = told.get("gpu") or gpu["name"]
    cap = told.get("readings", {}).get("power_cap_mW")
    return f"{name}, {cap // 1000} W" if cap else str(name)


def facts(launch: "Launch") -> dict[str, str]:
    """Asked right after work: the generation of a link falls while it idles."""
    found = {"not measured": ", ".join(f"{k}: {v}" for k, v in gemm.reasons.items()) or "nothing"}
    readings = _asked(_gpu(launch)).get("readings", {})
    if "pcie" in readings and "pcie_width" in readings:
        found["PCIe"] = f"gen{readings['pcie']} x{readings['pcie_width']}"
    if "throttle" in readings:
        found["throttle reasons"] = f"{readings['throttle'] & ~1:#x}"  # 1: idle
    return found


def speed(launch: "Launch", repeats: Mapping[str, int]) -> dict[str, list[float]]:
    """GB/s of the GPU's memory and of its link to the host; TFLOP/s of products of matrices."""
    cuda, index = _native.cuda(), gpu_index(launch)
    cuda.set_rank(launch.rank)
    found: dict[str, list[float]] = {}
    if count := _most(repeats, _MEMORY):
        free = cuda.memory_info(index)[0]
        size = min(_MOST_BYTES, 1 << (max(free // _SHARE, 1 << 20).bit_length() - 1))
        found |= _rates(cuda.time_device_memory(index, size, count), _MEMORY)
    if count := _most(repeats, _TRANSFERS):
        found |= _rates(cuda.time_transfers(index, _TRANSFER_BYTES, count), _TRANSFERS)
    found |= gemm.rates(index, repeats)
    return {name: values for name, values in found.items() if name in repeats}


def fingerprint(launch: "Launch", seconds: float) -> dict[str, Any]:
    """Of every multiprocessor, again and again for so long."""
    cuda, index = _native.cuda(), gpu_index(launch)
    cuda.set_rank(launch.rank)
    told = cuda.gpu_fingerprint(index, seconds, seconds=seconds + 20)
    major, minor = cuda.devices()[index]["compute_capability"]
    seen = ((f"SM {sm}", repeat, hashes) for sm, repeat, hashes in told["seen"])
    code = f"compute capability {major}.{minor}, code of {told['code'] / 10:g}"
    code += f", {cuda.build_info['nvcc']}"
    summary = prints.summary(code, told["golden"], seen)
    return {**summary, "computed": told["computed"], "places_there": told["multiprocessors"]}


def _gpu(launch: "Launch") -> dict[str, Any]:
    gpu: dict[str, Any] = _native.cuda().devices()[gpu_index(launch)]
    return gpu


def _asked(gpu: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing where NVML is not there: the stage health has said so."""
    try:
        told: dict[str, Any] = _native.core().gpu_health(gpu["uuid"].partition("-")[2])
    except OddrankError:
        return {}
    return told


def _most(repeats: Mapping[str, int], names: Mapping[str, str]) -> int:
    return max((repeats[name] for name in names if name in repeats), default=0)


def _rates(times: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, list[float]]:
    return {
        name: [times["bytes"] * _MOVED[way] / seconds / 1e9 for seconds in times[way]]
        for name, way in names.items()
    }

"""The device that the ranks compute on: GPUs if each rank has one to itself, else the CPU."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from oddrank import _native

if TYPE_CHECKING:
    from oddrank.launch import Launch

CPU, GPU = "CPU", "GPU"
# Device -> the backend of torch.distributed that fits it.
BACKENDS = {CPU: "gloo", GPU: "nccl"}


class GpuFacts(TypedDict):
    """A rank's GPUs as CUDA shows them, for `choose`."""

    gpus: int
    gpu: str | None
    local_world: int
    gpu_id: str | None
    cuda_part: str  # why the part _cuda is missing; "" if it is there or there is no GPU
    obstacle: str  # why the part _cuda can't use NCCL


def facts(launch: "Launch") -> GpuFacts:
    """Returns the facts about a rank's GPUs."""
    import torch

    gpus = torch.cuda.device_count()
    part = _native.cuda_part()
    return {
        "gpus": gpus,
        "gpu": torch.cuda.get_device_name(gpu_index(launch) % gpus) if gpus else None,
        "local_world": launch.local_world,
        # A launcher that gives each rank one GPU shows it to that rank alone, as number 0.
        "gpu_id": _gpu_id() if gpus == 1 else None,
        "cuda_part": "" if part.module or not gpus else f"_cuda: {part.reason}. {part.advice}",
        "obstacle": part.module.nccl_obstacle() if part.module and gpus else "",
    }


def choose(ranks: Collection[GpuFacts]) -> str:
    """Returns GPU if every rank has one to itself, else CPU: no mixture, no sharing."""
    singles = [r for r in ranks if r["gpus"] == 1 < r["local_world"]]
    others = [r for r in ranks if not r["gpus"] == 1 < r["local_world"]]
    ids = {r["gpu_id"] for r in singles} - {None}
    alone = len(ids) == len(singles) and all(r["gpus"] >= r["local_world"] for r in others)
    return GPU if alone else CPU


def gpu_index(launch: "Launch") -> int:
    """Returns the index of this rank's GPU among those that CUDA shows it."""
    import torch

    return 0 if torch.cuda.device_count() == 1 else launch.local_rank


def name_of_gpu(facts: Mapping[str, Any], local_rank: int) -> str:
    """Returns GPU 3 by nvidia-smi's number, or GPU-1b2c... if the job names it so; "" if unknown.

    Reads facts' `visible_gpus`, which is CUDA_VISIBLE_DEVICES: it may have any order.
    """
    visible = facts.get("visible_gpus")
    if not isinstance(visible, str) or not visible:
        return ""
    index = 0 if facts["gpus"] == 1 else local_rank
    given = visible.split(",")
    name = given[index].strip() if index < len(given) else ""
    return f"GPU {name}" if name.isdigit() else name


def _gpu_id() -> str:
    import torch

    return str(torch.cuda.get_device_properties(0).uuid)

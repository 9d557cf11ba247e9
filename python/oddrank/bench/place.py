"""What the ranks compute on: a GPU each where there is one for everybody, else the CPU."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from oddrank import _native

if TYPE_CHECKING:
    from oddrank.launch import Launch

CPU, GPU = "CPU", "GPU"
# Device -> the backend of torch.distributed that fits it.
BACKENDS = {CPU: "gloo", GPU: "nccl"}


def facts(launch: "Launch") -> dict[str, Any]:
    """What a rank says of its GPUs, for `choose`."""
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


def choose(ranks: Collection[Mapping[str, Any]]) -> str:
    """GPU where every rank has one to itself: never two ranks on one, never some on each."""
    singles = [r for r in ranks if r["gpus"] == 1 < r["local_world"]]
    others = [r for r in ranks if not r["gpus"] == 1 < r["local_world"]]
    ids = {r["gpu_id"] for r in singles} - {None}
    alone = len(ids) == len(singles) and all(r["gpus"] >= r["local_world"] for r in others)
    return GPU if alone else CPU


def gpu_index(launch: "Launch") -> int:
    """This rank's GPU, as CUDA numbers those that it sees."""
    import torch

    return 0 if torch.cuda.device_count() == 1 else launch.local_rank


def _gpu_id() -> str:
    import torch

    return str(torch.cuda.get_device_properties(0).uuid)

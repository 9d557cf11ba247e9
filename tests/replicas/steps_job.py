"""One rank of a real gloo job with a NaN made within a step.

steps_job.py RANK WORLD FOLDER
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from oddrank import replicas
from replicas.scenarios import folder, rank_main, scenario
from replicas.small_training import model, step, trained

WORLD = 3


def sharded() -> tuple[nn.Module, torch.optim.Optimizer]:
    module = model()
    mesh = init_device_mesh("cpu", (WORLD,))
    for block in module:
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module, torch.optim.AdamW(module.parameters(), lr=0.01)


def searched(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    each: Callable[[int], None] = lambda number: None,
    **how: Any,
) -> Any:
    """Makes four steps with each(number) before them; returns what the search reports."""
    reports: list[Any] = []
    with replicas.watch_nonfinite(module, optimizer, every=2, on_found=reports.append, **how):
        for number in range(1, 5):
            each(number)
            step(module, optimizer, number)
    return reports


def spoil(layer: nn.Module, spoils: Callable[[], bool]) -> None:
    """Makes a layer return an infinity where spoils() says so."""

    def hook(layer: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        return output * (torch.inf if spoils() else 1.0)

    layer.register_forward_hook(hook)


@scenario
def all_finite(rank: int) -> Any:
    return searched(*trained(rank, 0))


@scenario
def one_rank_overflows(rank: int) -> Any:
    module, optimizer = trained(rank, 0)
    now = [0]
    spoil(module.module[1].up, lambda: rank == 1 and now[0] == 3)
    return searched(module, optimizer, lambda number: now.__setitem__(0, number), steps_before=4000)


@scenario
def one_rank_s_gradient_is_nan(rank: int) -> Any:
    module, optimizer = trained(rank, 0)
    weight = module.module[0].norm.weight
    weight.register_hook(lambda grad: grad * (torch.nan if rank == 2 else 1.0))
    return searched(module, optimizer)


class Uneven(nn.Module):
    """Rank 1 calls a layer more often, before ranks add up what it made; the last call is inf."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rank, self.own, self.last = rank, nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(9 if self.rank == 1 else 1):
            own = self.own(x)
        if self.rank == 1:
            own = self.own(x * torch.inf)
        shared = own.detach().clone()
        dist.all_reduce(shared)
        return self.last(own + shared)


@scenario
def one_rank_runs_more_layers(rank: int) -> Any:
    module = Uneven(rank)
    return searched(module, torch.optim.SGD(module.parameters(), lr=0.1))


@scenario
def one_rank_s_parameter_is_nan(rank: int) -> Any:
    """Tensor-parallel: all ranks get the sum of what the layer makes of it."""
    module = model()
    mesh = init_device_mesh("cpu", (WORLD,))
    module[0].up, module[0].down = nn.Linear(32, 6 * WORLD), nn.Linear(6 * WORLD, 32)
    parallelize_module(module[0], mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    if rank == 1:
        with torch.no_grad():
            module[0].up.weight.to_local()[0, 0] = torch.nan
    return searched(module, torch.optim.SGD(module.parameters(), lr=0.1))


@scenario
def one_rank_of_full_shards_overflows(rank: int) -> Any:
    module, optimizer = sharded()
    spoil(module[0].down, lambda: rank == 2)
    return searched(module, optimizer)


@scenario
def all_ranks_diverge(rank: int) -> Any:
    module, optimizer = trained(rank, 0)
    optimizer.param_groups[0]["lr"] = torch.inf
    return searched(module, optimizer)


@scenario
def a_search_ends_the_step_on_all_ranks(rank: int) -> Any:
    module, optimizer = trained(rank, 0)
    spoil(module.module[0].up, lambda: rank == 0)
    watch = replicas.watch_nonfinite(module, optimizer, every=1)
    try:
        step(module, optimizer, 1)
    except replicas.NonfiniteError as error:
        return [str(error), error.report]
    finally:
        watch.remove()
    return ["nothing was raised"]


@scenario
def saved_in_shards_and_whole(rank: int) -> Any:
    """Saves the same tensors in both forms, for a test without ranks."""
    module, optimizer = sharded()
    step(module, optimizer, rank)
    dcp.save({"model": get_model_state_dict(module), "step": 7}, checkpoint_id=folder() / "shards")
    whole = {name: tensor.full_tensor() for name, tensor in module.state_dict().items()
             if hasattr(tensor, "full_tensor")}  # fmt: skip
    if rank == 0:
        scales = {f"{i}.scale": module[i].scale for i in range(2)}
        torch.save({"model": {**whole, **scales}, "step": 7}, folder() / "whole.pt")


if __name__ == "__main__":
    rank_main()

"""One rank of a real gloo job: runs SCENARIOS, each with a fault, and writes the reports.

replicas_job.py RANK WORLD FOLDER
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from oddrank import OddrankError, replicas

SCENARIOS: dict[str, Callable[[int], Any]] = {}
WORLD = 4


def scenario(run: Callable[[int], Any]) -> Callable[[int], Any]:
    SCENARIOS[run.__name__] = run
    return run


class Block(nn.Module):
    """A block of a transformer without attention: norm, two linears, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)
        self.register_buffer("scale", torch.full((3,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x)))) * self.scale[0]


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(Block(), Block())


def step(module: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    torch.manual_seed(seed)
    data = torch.randn(8, 32)
    optimizer.zero_grad()
    module(data).square().mean().backward()
    optimizer.step()


def trained(rank: int, steps: int = 2) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Returns a module in DDP and its optimizer after some steps on each rank's own data."""
    module = DistributedDataParallel(model())
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    for number in range(steps):
        step(module, optimizer, 100 * number + rank)
    return module, optimizer


def flip(tensor: torch.Tensor, element: int, bit: int) -> None:
    """Flips a bit of a float32."""
    tensor.detach().view(-1).view(torch.int32)[element] ^= 1 << bit


@scenario
def healthy(rank: int) -> Any:
    return replicas.check(*trained(rank)).envelope()


@scenario
def flipped_bit(rank: int) -> Any:
    module, optimizer = trained(rank)
    if rank == 2:
        flip(module.module[1].up.weight, 33 * 32 + 7, 12)
    return replicas.check(module, optimizer).envelope()


@scenario
def flipped_optimizer_state(rank: int) -> Any:
    module, optimizer = trained(rank)
    if rank == 1:
        flip(optimizer.state[module.module[0].norm.bias]["exp_avg_sq"], 5, 30)
    return replicas.check(module, optimizer).envelope()


@scenario
def flipped_buffer(rank: int) -> Any:
    module, optimizer = trained(rank)
    if rank == 0:
        flip(module.module[0].scale, 2, 31)
    return replicas.check(module, optimizer, what=("buffers",)).envelope()


@scenario
def skipped_broadcast(rank: int) -> Any:
    """Trained by hand: rank 1 began with weights of its own, as nobody broadcast rank 0's."""
    module = model(seed=7 if rank == 1 else 0)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    torch.manual_seed(rank)
    module(torch.randn(8, 32)).square().mean().backward()
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    return replicas.check(module, optimizer).envelope()


@scenario
def without_no_sync_s_last_backward(rank: int) -> Any:
    """Gradients of each rank's own: nobody has a majority."""
    module, optimizer = trained(rank)
    with module.no_sync():
        module(torch.randn(8, 32)).sum().backward()
    return replicas.check(module, optimizer, what=("grads", "params")).envelope()


def bloom(rank: int, clips: Callable[[int], bool]) -> Any:
    """Tensor-parallel training whose norms are clipped on some ranks only; checked after a step."""
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    module = model()
    for block in module:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    reports = []

    def step_once() -> None:
        torch.manual_seed(3)
        data = torch.randn(8, 32)
        optimizer.zero_grad()
        (module(data) * 100).square().mean().backward()
        if clips(rank):
            for block in module:
                torch.nn.utils.clip_grad_norm_(block.norm.parameters(), 1.0)
        optimizer.step()

    with replicas.watch(module, optimizer, every=100, on_diff=reports.append):
        for _ in range(3):
            step_once()
    return [report.envelope() for report in reports]


@scenario
def bloom_clips_on_rank_0_only(rank: int) -> Any:
    return bloom(rank, lambda rank: rank == 0)


@scenario
def bloom_forgets_on_rank_2(rank: int) -> Any:
    return bloom(rank, lambda rank: rank != 2)


@scenario
def bloom_mended(rank: int) -> Any:
    return bloom(rank, lambda rank: True)


@scenario
def hybrid_shards(rank: int) -> Any:
    """FSDP2 on 2 x 2: each shard has one copy."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    module = model()
    for block in module:
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    step(module, optimizer, rank)
    before = replicas.check(module, optimizer).envelope()
    if rank == 3:
        flip(module[0].up.weight.to_local(), 40, 3)
    return [before, replicas.check(module, optimizer).envelope()]


@scenario
def full_shards(rank: int) -> Any:
    module = model()
    fully_shard(module, mesh=init_device_mesh("cpu", (WORLD,)))
    return replicas.check(module).envelope()


@scenario
def dtensors_in_two_dimensions(rank: int) -> Any:
    """Data- and tensor-parallel: 0-1 and 2-3 share shards along dp, 0-2 and 1-3 ... along tp."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    module = nn.Linear(8, 8)
    torch.manual_seed(1)
    weight, bias = torch.randn(8, 8), torch.randn(8)
    module.weight = nn.Parameter(distribute_tensor(weight, mesh, [Replicate(), Shard(0)]))
    module.bias = nn.Parameter(distribute_tensor(bias, mesh, [Replicate(), Replicate()]))
    if rank == 1:
        flip(module.bias.to_local(), 6, 1)
    report = replicas.check(module)
    assert isinstance(module.weight, DTensor)
    return report.envelope()


@scenario
def wrong_resume(rank: int) -> Any:
    module, optimizer = trained(rank)
    step_ = 4000 if rank == 3 else 4100
    return replicas.check(
        module, optimizer, facts={"step": step_, "resumed from": f"/ckpt/{step_}"}
    ).envelope()


@scenario
def other_learning_rate(rank: int) -> Any:
    module, optimizer = trained(rank)
    if rank == 0:
        optimizer.param_groups[0]["lr"] = 0.02
    return replicas.check(module, optimizer).envelope()


@scenario
def seeds(rank: int) -> Any:
    found = []
    for seed in (rank, 5, 6 if rank == 2 else 5):
        module, optimizer = trained(rank)
        torch.manual_seed(seed)
        found.append(replicas.check(module, optimizer).envelope())
    return found


@scenario
def missing_layer(rank: int) -> Any:
    module = model()
    if rank == 1:
        module.append(nn.Linear(32, 5))
        module[0].up = nn.Linear(32, 65)
    return replicas.check(module, what=("params",), groups=dist.group.WORLD).envelope()


@scenario
def given_halves(rank: int) -> Any:
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    module = model(seed=rank // 2)
    if rank == 3:
        flip(module[0].norm.weight, 0, 22)
    patterns = {"*.scale": None, "*": halves[rank // 2]}
    return replicas.check(module, groups=patterns).envelope()


@scenario
def a_group_of_two_ranks_only(rank: int) -> Any:
    """Ranks 0 and 1 hold no part of it, and get the report about it, too."""
    pair = dist.new_group([2, 3])
    module = model()
    if rank == 3:
        flip(module[1].up.bias, 9, 3)
    groups = {"1.up.*": pair if rank > 1 else None, "*": dist.group.WORLD}
    return replicas.check(module, groups=groups).envelope()


@scenario
def groups_that_differ(rank: int) -> Any:
    pair = dist.new_group([0, 1])
    group = pair if rank == 0 else dist.group.WORLD
    return replicas.check(model(), groups=group).envelope()


@scenario
def what_cannot_be_compared(rank: int) -> Any:
    module = model()
    module.meta = nn.Linear(2, 2, device="meta")
    module.tied = module[0].up
    module.expert = nn.Linear(2, 2)
    module.expert.weight.allreduce = False
    module.batch_norm = nn.BatchNorm1d(4)
    module.batch_norm.running_mean += rank
    module.lazy = nn.LazyLinear(3)
    return replicas.check(module).envelope()


@scenario
def all_types(rank: int) -> Any:
    """A flipped bit in each, seen as a value of its type."""
    module = nn.Module()
    for number, dtype in enumerate(
        (torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.bool, torch.int8,
         torch.int64, torch.float8_e4m3fn)
    ):  # fmt: skip
        tensor = torch.ones(4, 6).to(dtype).t()
        if rank == 1:
            content = tensor.t().view(torch.uint8)
            content[2, 3 * dtype.itemsize] ^= 1
        module.register_buffer(f"of{number}", tensor)
    return replicas.check(module, what=("buffers",)).envelope()


@scenario
def watched(rank: int) -> Any:
    """The flip after step 4 ends all ranks at step 6, the next one that is looked at."""
    module, optimizer = trained(rank, 0)
    watch = replicas.watch(module, optimizer, every=3)
    try:
        for number in range(1, 9):
            step(module, optimizer, number)
            if number == 4 and rank == 2:
                flip(module.module[0].down.bias, 1, 20)
    except replicas.ReplicasDifferError as error:
        return [watch.steps, str(error), error.report.verdict]
    finally:
        watch.remove()
    return [watch.steps, "nothing was raised", ""]


@scenario
def bad_arguments(rank: int) -> Any:
    module, optimizer = trained(rank, 0)
    said = []
    for call in (
        lambda: replicas.check(module, groups="dp"),
        lambda: replicas.check(module, groups={"*": 3}),
        lambda: replicas.check(module, what=("weights",)),
        lambda: replicas.watch(module, optimizer, every=0),
        lambda: replicas.watch(module, optimizer, on_diff="stop"),
        lambda: replicas.check(module, facts={3: 4}),
    ):
        try:
            call()
            said.append("")
        except OddrankError as error:
            said.append(str(error))
    return said


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    wanted = sys.argv[4:] or list(SCENARIOS)
    found = {}
    for name in wanted:
        found[name] = SCENARIOS[name](rank)
        print(f"{name}: ended", flush=True)  # shows in the failure's text where a job hung
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

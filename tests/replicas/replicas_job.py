"""One rank of a real gloo job: runs SCENARIOS, each with a fault, and writes the reports.

replicas_job.py RANK WORLD FOLDER
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from oddrank import OddrankError, replicas
from replicas.scenarios import folder, rank_main, scenario
from replicas.small_training import flip, model, step, trained

WORLD = 4


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
def digests_of_hybrid_shards(rank: int) -> Any:
    """The first copy of a shard saves its digest, and rank 3's copy changes before the load."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    module = model()
    for block in module:
        fully_shard(block, mesh=mesh)
    replicas.save_digests(folder(), module)
    dist.barrier()
    before = replicas.check_digests(folder(), module).envelope()
    if rank == 3:
        flip(module[1].down.weight.to_local(), 17, 2)
    return [before, replicas.check_digests(folder(), module).envelope()]


@scenario
def full_shards(rank: int) -> Any:
    module = model()
    fully_shard(module, mesh=init_device_mesh("cpu", (WORLD,)))
    return replicas.check(module).envelope()


@scenario
def shards_beside_tensor_parallelism(rank: int) -> Any:
    """FSDP2 shards the norms over two ranks, and the other two have the same shards."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    module = model()
    for block in module:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    step(module, optimizer, rank // 2)
    before = replicas.check(module, optimizer).envelope()
    if rank == 3:
        flip(module[1].norm.weight.to_local(), 4, 3)
    return [before, replicas.check(module, optimizer).envelope()]


@scenario
def dtensors_in_two_dimensions(rank: int) -> Any:
    """Data- and tensor-parallel: 0 and 2, 1 and 3 have the same shard; all have the bias."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    module = nn.Linear(8, 8)
    torch.manual_seed(1)
    weight, bias = torch.randn(8, 8), torch.randn(8)
    module.weight = nn.Parameter(distribute_tensor(weight, mesh, [Replicate(), Shard(0)]))
    module.bias = nn.Parameter(distribute_tensor(bias, mesh, [Replicate(), Replicate()]))
    if rank == 1:
        flip(module.bias.to_local(), 6, 1)
        flip(module.weight.to_local(), 5, 1)
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
def groups_of_one_rank(rank: int) -> Any:
    """As data parallelism over one rank beside tensor parallelism: nothing has a copy."""
    alone = [dist.new_group([one]) for one in range(WORLD)][rank]
    return replicas.check(model(seed=rank), groups=alone, what=("params",)).envelope()


@scenario
def a_group_that_all_ranks_give(rank: int) -> Any:
    """Rank 3 is not in it, and still makes the call."""
    three = dist.new_group([0, 1, 2])
    module = model(seed=rank // 3)
    torch.manual_seed(0)
    if rank == 1:
        flip(module[0].norm.weight, 0, 22)
    return replicas.check(module, groups=three, what=("params",)).envelope()


@scenario
def groups_of_all_ranks_that_are_found_in_another_order(rank: int) -> Any:
    """Rank 1 lacks the layer whose group the others find first."""
    twin = dist.new_group(range(WORLD))
    module = model()
    if rank == 1:
        del module[0].norm
    groups = {"0.norm.*": twin, "*": dist.group.WORLD}
    return replicas.check(module, what=("params",), groups=groups).envelope()


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
def groups_that_change_between_checks(rank: int) -> Any:
    """Rank 0 leaves the group of all in the second step: nobody may wait for it."""
    module, optimizer = trained(rank, 0)
    pair, reports, now = dist.new_group([0, 1]), [], [1]

    def groups(name: str, tensor: torch.Tensor) -> Any:
        return pair if rank == 0 and now[0] == 2 else dist.group.WORLD

    with replicas.watch(module, optimizer, every=1, groups=groups, on_diff=reports.append):
        for number in (1, 2):
            now[0] = number
            step(module, optimizer, number)
    return [report.envelope() for report in reports]


@scenario
def old_fsdp(rank: int) -> Any:
    """FSDP1's parameters look like plain tensors; so do those that only the optimizer has."""
    module = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    stranger = nn.Parameter(torch.full((3,), float(rank)))
    optimizer = torch.optim.SGD([*module.parameters(), stranger], lr=0.1, momentum=0.9)
    optimizer.state[stranger]["momentum_buffer"] = torch.full((3,), float(rank))
    step(module, optimizer, rank)
    return replicas.check(module, optimizer, what=("params", "buffers", "optim")).envelope()


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
def watched_after_other_steps(rank: int) -> Any:
    module, optimizer = trained(rank, 0)
    try:
        with replicas.watch(module, optimizer, every=3 if rank == 2 else 2):
            step(module, optimizer, 1)
    except replicas.ReplicasDifferError as error:
        return error.report.envelope()
    return None


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


if __name__ == "__main__":
    rank_main()

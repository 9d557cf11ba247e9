"""One rank of a real gloo job: runs SCENARIOS, each with a fault, and writes the reports.

replicas_job.py RANK WORLD FOLDER
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from oddrank import replicas
from replicas.scenarios import SCENARIOS, rank_main, scenario
from replicas.small_training import flip, model, step, trained

WORLD = 4
BY_COLUMNS_AND_ROWS = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def of_hosts(*dimensions: str) -> Any:
    """Returns a mesh of two ranks by two."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=dimensions)


def around_a_flip(check: Callable[[], Any], rank: int, tensor: Any, element: int) -> list[Any]:
    """Checks before and after a bit of rank 3's part of a DTensor changes."""
    before = check()
    if rank == 3:
        flip(tensor.to_local(), element, 3)
    return [before, check()]


@scenario
def healthy(rank: int) -> Any:
    return replicas.check(*trained(rank))


# Name -> (the rank with a fault, what it does to module and optimizer, options of the check).
HURTS: dict[str, tuple[int, Callable[[Any, Any], Any], dict[str, Any]]] = {
    "flipped_bit": (2, lambda m, o: flip(m.module[1].up.weight, 33 * 32 + 7, 12), {}),
    "flipped_optimizer_state":
        (1, lambda m, o: flip(o.state[m.module[0].norm.bias]["exp_avg_sq"], 5, 30), {}),
    "flipped_buffer": (0, lambda m, o: flip(m.module[0].scale, 2, 31), {"what": ("buffers",)}),
    "other_learning_rate": (0, lambda m, o: o.param_groups[0].update(lr=0.02), {}),
}  # fmt: skip


def hurt(name: str, rank: int) -> Any:
    module, optimizer = trained(rank)
    odd, does, how = HURTS[name]
    if rank == odd:
        does(module, optimizer)
    return replicas.check(module, optimizer, **how)


SCENARIOS.update({name: partial(hurt, name) for name in HURTS})


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
    return replicas.check(module, optimizer)


@scenario
def without_no_sync_s_last_backward(rank: int) -> Any:
    """Gradients of each rank's own: nobody has a majority."""
    module, optimizer = trained(rank)
    with module.no_sync():
        module(torch.randn(8, 32)).sum().backward()
    return replicas.check(module, optimizer, what=("grads", "params"))


def bloom(clips: Callable[[int], bool], rank: int) -> Any:
    """Tensor-parallel training whose norms are clipped on some ranks only; checked after a step."""
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    module = model()
    for block in module:
        parallelize_module(block, mesh, BY_COLUMNS_AND_ROWS)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    reports: list[Any] = []
    with replicas.watch(module, optimizer, every=100, on_diff=reports.append):
        for _ in range(3):
            torch.manual_seed(3)
            optimizer.zero_grad()
            (module(torch.randn(8, 32)) * 100).square().mean().backward()
            for block in module if clips(rank) else ():
                torch.nn.utils.clip_grad_norm_(block.norm.parameters(), 1.0)
            optimizer.step()
    return reports


SCENARIOS["bloom_clips_on_rank_0_only"] = partial(bloom, lambda rank: rank == 0)
SCENARIOS["bloom_forgets_on_rank_2"] = partial(bloom, lambda rank: rank != 2)
SCENARIOS["bloom_mended"] = partial(bloom, lambda rank: True)


def fully_sharded(mesh: Any) -> nn.Module:
    module = model()
    for block in module:
        fully_shard(block, mesh=mesh)
    return module


@scenario
def hybrid_shards(rank: int) -> Any:
    """FSDP2 on 2 x 2: each shard has one copy."""
    mesh = of_hosts("replicate", "shard")
    module = fully_sharded(mesh)
    fully_shard(module, mesh=mesh)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    step(module, optimizer, rank)
    check = partial(replicas.check, module, optimizer)
    return around_a_flip(check, rank, module[0].up.weight, 40)


@scenario
def full_shards(rank: int) -> Any:
    module = model()
    fully_shard(module, mesh=init_device_mesh("cpu", (WORLD,)))
    return replicas.check(module)


@scenario
def shards_beside_tensor_parallelism(rank: int) -> Any:
    """FSDP2 shards the norms over two ranks, and the other two have the same shards."""
    mesh = of_hosts("dp", "tp")
    module = model()
    for block in module:
        parallelize_module(block, mesh["tp"], BY_COLUMNS_AND_ROWS)
        fully_shard(block, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    step(module, optimizer, rank // 2)
    check = partial(replicas.check, module, optimizer)
    return around_a_flip(check, rank, module[1].norm.weight, 4)


@scenario
def dtensors_in_two_dimensions(rank: int) -> Any:
    """Data- and tensor-parallel: 0 and 2, 1 and 3 have the same shard; all have the bias."""
    mesh, module = of_hosts("dp", "tp"), nn.Linear(8, 8)
    torch.manual_seed(1)
    weight, bias = torch.randn(8, 8), torch.randn(8)
    module.weight = nn.Parameter(distribute_tensor(weight, mesh, [Replicate(), Shard(0)]))
    module.bias = nn.Parameter(distribute_tensor(bias, mesh, [Replicate(), Replicate()]))
    if rank == 1:
        flip(module.bias.to_local(), 6, 1)
        flip(module.weight.to_local(), 5, 1)
    report = replicas.check(module)
    assert isinstance(module.weight, DTensor)
    return report


@scenario
def chunks_and_state_dicts(rank: int) -> Any:
    """A list of modules, one in DDP, as Megatron has them; a state dict."""
    chunks = [trained(rank)[0], model()]
    reports = [replicas.check(chunks)]
    state = {"model": chunks[0].state_dict(), "step": 7, "bn.running_mean": torch.ones(2) * rank}
    if rank == 2:
        flip(chunks[1][0].norm.weight, 3, 22)
        flip(state["model"]["module.0.norm.weight"], 3, 22)
    reports += [replicas.check(chunks), replicas.check(state)]
    return reports


@scenario
def wrong_resume(rank: int) -> Any:
    number = 4000 if rank == 3 else 4100
    facts = {"step": number, "resumed from": f"/ckpt/{number}"}
    return replicas.check(*trained(rank), facts=facts)


@scenario
def missing_layer(rank: int) -> Any:
    module = model()
    if rank == 1:
        module.append(nn.Linear(32, 5))
        module[0].up = nn.Linear(32, 65)
    return replicas.check(module, what=("params",), groups=dist.group.WORLD)


@scenario
def given_halves(rank: int) -> Any:
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    module = model(seed=rank // 2)
    if rank == 3:
        flip(module[0].norm.weight, 0, 22)
    return replicas.check(module, groups={"*.scale": None, "*": halves[rank // 2]})


@scenario
def groups_of_one_rank(rank: int) -> Any:
    """As data parallelism over one rank beside tensor parallelism: nothing has a copy."""
    alone = [dist.new_group([one]) for one in range(WORLD)][rank]
    return replicas.check(model(seed=rank), groups=alone, what=("params",))


@scenario
def a_group_that_all_ranks_give(rank: int) -> Any:
    """Rank 3 is not in it, and still makes the call."""
    three, module = dist.new_group([0, 1, 2]), model(seed=rank // 3)
    torch.manual_seed(0)
    if rank == 1:
        flip(module[0].norm.weight, 0, 22)
    return replicas.check(module, groups=three, what=("params",))


@scenario
def groups_of_all_ranks_that_are_found_in_another_order(rank: int) -> Any:
    """Rank 1 lacks the layer whose group the others find first."""
    twin, module = dist.new_group(range(WORLD)), model()
    if rank == 1:
        del module[0].norm
    groups = {"0.norm.*": twin, "*": dist.group.WORLD}
    return replicas.check(module, what=("params",), groups=groups)


@scenario
def a_group_of_two_ranks_only(rank: int) -> Any:
    """Ranks 0 and 1 hold no part of it, and get the report about it, too."""
    pair, module = dist.new_group([2, 3]), model()
    if rank == 3:
        flip(module[1].up.bias, 9, 3)
    groups = {"1.up.*": pair if rank > 1 else None, "*": dist.group.WORLD}
    return replicas.check(module, groups=groups)


@scenario
def groups_that_differ(rank: int) -> Any:
    pair = dist.new_group([0, 1])
    return replicas.check(model(), groups=pair if rank == 0 else dist.group.WORLD)


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
    return reports


@scenario
def old_fsdp(rank: int) -> Any:
    """FSDP1's parameters look like plain tensors; so do those that only the optimizer has."""
    module = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    stranger = nn.Parameter(torch.full((3,), float(rank)))
    optimizer = torch.optim.SGD([*module.parameters(), stranger], lr=0.1, momentum=0.9)
    optimizer.state[stranger]["momentum_buffer"] = torch.full((3,), float(rank))
    step(module, optimizer, rank)
    return replicas.check(module, optimizer, what=("params", "buffers", "optim"))


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
    return replicas.check(module)


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
            tensor.t().view(torch.uint8)[2, 3 * dtype.itemsize] ^= 1
        module.register_buffer(f"of{number}", tensor)
    return replicas.check(module, what=("buffers",))


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
        return [watch.steps, str(error), error.report]
    finally:
        watch.remove()


@scenario
def watched_after_other_steps(rank: int) -> Any:
    module, optimizer = trained(rank, 0)
    try:
        with replicas.watch(module, optimizer, every=3 if rank == 2 else 2):
            step(module, optimizer, 1)
    except replicas.ReplicasDifferError as error:
        return error.report


if __name__ == "__main__":
    rank_main()

"""Which tensors are compared, and with which ranks: one rank of a job whose groups send nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from bench.told import refusal
from golden import Golden
from oddrank import OddrankError

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import Replicate, distribute_tensor  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from oddrank import replicas  # noqa: E402
from oddrank.replicas import entries  # noqa: E402
from oddrank.replicas.check import odd_facts  # noqa: E402
from oddrank.replicas.groups import AUTO, Places  # noqa: E402
from replicas import small_training  # noqa: E402

RANK, WORLD = 1, 4
EVERYWHERE = ((0, 1, 2, 3),)


@pytest.fixture
def job() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=WORLD)
    yield
    dist.destroy_process_group()


@pytest.fixture
def mesh(job: None) -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


Ranks = dict[str, tuple[tuple[int, ...], ...]]


def compared(
    module: Any, optimizer: Any = None, groups: Any = AUTO
) -> tuple[Ranks, dict[str, str]]:
    """Returns name -> the ranks with copies, and name -> why it is left out."""
    found, skipped = entries.choose(module, optimizer, Places.of(module, groups), entries.ALL)
    ranks = dist.get_process_group_ranks
    of_names = {one.name: tuple(tuple(ranks(group)) for group in one.groups) for one in found}
    return of_names, {one.name: one.why for one in skipped}


class Lists(torch.optim.SGD):
    """Keeps a list of tensors, a mapping, a count and a loss for each parameter, as some do."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            for one in group["params"]:
                factors = [torch.eye(2), {"row": torch.ones(2)}]
                self.state[one] = {"factors": factors, "step": 7, "last_loss": 0.25}


def test_tensors_in_lists_and_counts_of_an_optimizer_are_compared(job: None):
    module = torch.nn.Linear(2, 2, bias=False)
    optimizer = Lists(module.parameters())
    optimizer.step()
    found, _ = compared(module, optimizer)
    assert set(found) == {"weight", "weight.factors.0", "weight.factors.1.row", "weight.step"}


def test_groups_without_this_rank_or_another_leave_their_tensors_out(job: None):
    found, skipped = compared(small_training.model(), groups=dist.new_group([RANK]))
    assert found == {}
    assert set(skipped.values()) == {"its group has one rank: no other rank has a copy"}
    found, skipped = compared(small_training.model(), groups={"0.*": dist.new_group([2, 3])})
    assert set(found.values()) == {EVERYWHERE}
    assert set(skipped.values()) == {"groups= gives it no group that this rank is in"}
    with pytest.raises(OddrankError, match="which is no process group"):
        compared(small_training.model(), groups=-1)


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(4, 3), torch.nn.Linear(3, 4, bias=False)
        self.head.weight = self.embed.weight


def test_a_tied_weight_goes_by_each_of_its_names(job: None):
    module = Tied()
    optimizer = torch.optim.SGD(module.parameters(), momentum=0.9)
    module.head(module.embed(torch.tensor([1]))).sum().backward()
    optimizer.step()
    for pattern in ("embed.weight", "head.*", "embed.weight = head.weight"):
        found, skipped = compared(module, optimizer, groups={pattern: None})
        assert found == {}, pattern
        assert len(skipped) == 3  # the weight, its gradient, its momentum


def test_a_part_of_the_mesh_is_compared_along_each_dimension_with_copies(job: None):
    mesh = DeviceMesh("cpu", [[[0, 1]]])
    module = torch.nn.Linear(4, 4, bias=False)
    copies = [Replicate(), Replicate(), Replicate()]
    module.weight = torch.nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, copies))
    assert compared(module)[0] == {"weight": ((0, 1),)}


def test_the_state_of_a_shard_has_no_copy_and_its_count_has(mesh: DeviceMesh):
    module = torch.nn.Linear(4, 4, bias=False)
    fully_shard(module, mesh=init_device_mesh("cpu", (WORLD,)))
    optimizer = torch.optim.SGD(module.parameters())
    optimizer.state[module.weight] = {"step": 3, "own": torch.ones(1, 4)}
    found, skipped = compared(module, optimizer)
    assert found == {"weight.step": EVERYWHERE}
    assert set(skipped) == {"weight", "weight.own"}


def test_what_a_rank_alone_uses_is_no_difference():
    """Rank 0 alone imports numpy, and the last stage has one parameter group more."""
    ranks: dict[int, dict[str, str]] = {rank: {"lr of parameter group 0": "1"} for rank in range(4)}
    ranks[0] |= {"numpy's version": "2"}
    ranks[3] |= {"lr of parameter group 1": "2"}
    assert odd_facts(ranks, {}) == []
    ranks[2]["lr of parameter group 0"] = "3"
    ranks[1]["resumed from"] = "step4000"
    assert [finding.who.ranks for finding in odd_facts(ranks, {})] == [(2,), (1,)]
    # What half of the ranks have is no rank's fault.
    halves = {rank: {"resumed from": f"step{rank % 2}"} for rank in range(4)}
    assert [finding.who.ranks for finding in odd_facts(halves, {})] == [()]


def test_bad_arguments_end_in_one_clear_line(job: None, golden: Golden):
    module, optimizer = small_training.single()
    checks = (
        {"groups": "dp"}, {"groups": {"*": 3}}, {"what": ("weights",)}, {"facts": {3: 4}},
        {"groups": {"*": None, "*.experts.*": None}},
    )  # fmt: skip
    said = [refusal(replicas.check, "model", optimizer)]
    said += [refusal(replicas.check, module, optimizer, **how) for how in checks]
    for call, *every_how in (
        (replicas.watch, {"every": 0}, {"on_diff": "stop"}),
        (replicas.watch_nonfinite, {"every": 0}, {"on_found": "stop"}, {"what": ("weights",)}),
    ):
        said += [refusal(call, module, optimizer, **how) for how in every_how]
    golden("\n".join(said))


class Wrapper:
    """As accelerate's or DeepSpeed's: it has a step, and none of the hooks on it."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer


def test_an_optimizer_without_hooks_is_one_line():
    for call in (replicas.watch, replicas.watch_nonfinite):
        with pytest.raises(
            OddrankError, match="a Wrapper has no hooks on its steps: give the torch"
        ):
            call(small_training.model(), Wrapper(None))

"""Finds the ranks that hold a copy of a tensor, and exchanges bytes with them by all_gather.

From DDP, DTensor's placements, or as given. A gather waits as long as torch's timeout.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from oddrank.errors import OddrankError
from oddrank.replicas import digests

Given = Any  # a process group, several, a device mesh, or None: not compared
# "auto", Given for all tensors, pattern of names -> Given, or a function of name and tensor.
Groups = str | Given | Mapping[str, Given] | Callable[[str, Any], Given]

AUTO = "auto"
# Megatron marks the parameters that are not alike on all ranks: attribute, value, meaning.
_MEGATRON = (
    ("tensor_model_parallel", True, "tensor parallelism shards it"),
    ("allreduce", False, "it belongs to an expert"),
)


@dataclass(frozen=True)
class Placed:
    """The groups whose members hold copies of a tensor; or none, and why."""

    groups: tuple[Any, ...] = ()
    why_not: str = ""


@dataclass
class Places:
    """Answers for the tensors of one module."""

    wanted: Groups
    meshes: list[Any] = field(default_factory=list)
    matched: set[str] = field(default_factory=set)  # patterns of `wanted` that a tensor had
    _ddp: dict[int, Placed] = field(default_factory=dict)
    _flat: set[int] = field(default_factory=set)  # parameters that FSDP1 shards
    _crossing: dict[Any, list[Any]] = field(default_factory=dict)  # mesh -> groups: see _across

    @staticmethod
    def of(module: Any, wanted: Groups) -> "Places":
        if isinstance(wanted, str) and wanted != AUTO:
            raise OddrankError(
                f"groups={wanted!r}: give 'auto', process groups, a mapping of name patterns to"
                " process groups, or a function of name and tensor"
            )
        places = Places(wanted)
        module = as_module(module)
        shard_again(module)
        for part in module.modules():
            if _is_ddp(part):
                places._add_ddp(part)
            elif (
                type(part).__name__ == "FullyShardedDataParallel"  # FSDP1
                and part.sharding_strategy.name != "NO_SHARD"
            ):
                places._flat |= {id(parameter) for parameter in part.parameters()}
        for _, tensor in _tensors(module):
            mesh = getattr(tensor, "device_mesh", None)
            if mesh is not None and all(mesh != known for known in places.meshes):
                places.meshes.append(mesh)
        return places

    def __call__(self, name: str, tensor: Any, *, known: bool = True) -> Placed:
        """Returns where copies of a parameter or buffer are. known: the module has it."""
        given = self._given(name, tensor)
        if not (isinstance(given, str) and given == AUTO):
            groups = _as_groups(given, name)
            why_not = "" if groups else "groups= gives it no group that this rank is in"
            return Placed(groups, why_not)
        return self._auto(tensor, known)

    def _given(self, name: str, tensor: Any) -> Given:
        if isinstance(self.wanted, Mapping):
            names = (name, *name.split(" = "))  # a tied weight goes by all of its names
            for pattern, given in self.wanted.items():
                if any(fnmatchcase(one, pattern) for one in names):
                    self.matched.add(pattern)
                    return given
            return AUTO
        if callable(self.wanted) and not _is_group(self.wanted):
            return self.wanted(name, tensor)
        return self.wanted

    def unmatched(self) -> list[str]:
        """Returns the patterns that gave no tensor its groups."""
        wanted = self.wanted if isinstance(self.wanted, Mapping) else ()
        return [pattern for pattern in wanted if pattern not in self.matched]

    def _auto(self, tensor: Any, known: bool) -> Placed:
        if hasattr(tensor, "placements"):
            return self._of_dtensor(tensor)
        if id(tensor) in self._ddp:
            return self._ddp[id(tensor)]
        why_not = self._apart(tensor, known)
        return Placed(why_not=why_not) if why_not else Placed(tuple(self._everywhere()))

    def _apart(self, tensor: Any, known: bool) -> str:
        """Returns why a plain tensor outside of DDP may be each rank's own; "" if it is not."""
        for attribute, value, why in _MEGATRON:
            if getattr(tensor, attribute, None) is value:
                return f"{why}: give groups= its data-parallel one"
        if id(tensor) in self._flat:
            return "FSDP1 shards it: give groups= the ranks with the same shard"
        if hasattr(tensor, "ds_id"):
            return "DeepSpeed ZeRO-3 shards it"
        if self._ddp:
            return "it is outside of the DDP modules"
        return "" if known else "the module does not have its parameter: give groups="

    def _everywhere(self) -> Iterator[Any]:
        """Yields the groups of a plain tensor: beside DTensors each rank of the mesh has it."""
        import torch.distributed as dist

        if self.meshes:
            largest = max(self.meshes, key=lambda mesh: int(mesh.size()))
            yield from over(largest)
            yield from self._across(largest)
        else:
            yield dist.group.WORLD

    def _across(self, mesh: Any) -> list[Any]:
        """Returns groups of other meshes in which this rank is the only one of `mesh`.

        A tensor on `mesh` alone has a copy on each rank of such a group: a norm that FSDP shards
        beside layers that tensor parallelism shards, too.
        """
        if mesh not in self._crossing:
            own = set(mesh.mesh.flatten().tolist())
            found: dict[tuple[int, ...], Any] = {}
            for other in self.meshes:
                for group in _dimensions(other):
                    ranks = members(group)
                    if len(own.intersection(ranks)) == 1:
                        found.setdefault(ranks, group)
            self._crossing[mesh] = list(found.values())
        return self._crossing[mesh]

    def _of_dtensor(self, tensor: Any) -> Placed:
        mesh = tensor.device_mesh
        if any(placement.is_partial() for placement in tensor.placements):
            return Placed(why_not="it is a partial sum, different on each rank by design")
        if all(placement.is_replicate() for placement in tensor.placements):
            return Placed((*over(mesh), *self._across(mesh)))
        copies = [
            mesh.get_group(dimension)
            for dimension, placement in enumerate(tensor.placements)
            if placement.is_replicate() and mesh.size(dimension) > 1
        ]
        copies += self._across(mesh)
        if copies:
            return Placed(tuple(copies))
        return Placed(why_not="it is sharded over all ranks: no other rank has a copy")

    def beside(self, name: str, parameter: Any, placed: Placed) -> Placed:
        """Returns where copies of a number beside a parameter are, such as its step count."""
        mesh = getattr(parameter, "device_mesh", None)
        given = self._given(name, parameter)
        if mesh is None or not (isinstance(given, str) and given == AUTO):
            return placed
        return Placed((*over(mesh), *self._across(mesh)))

    def _add_ddp(self, ddp: Any) -> None:
        ignored, own = set(getattr(ddp, "parameters_to_ignore", ())), Placed((ddp.process_group,))
        left_out = Placed(why_not="DDP was told to ignore it")
        for name, tensor in _tensors(ddp.module):
            self._ddp.setdefault(id(tensor), left_out if name in ignored else own)


def over(mesh: Any) -> Iterator[Any]:
    """Yields the groups of ranks that share tensors of all ranks of a mesh."""
    import torch.distributed as dist

    if mesh.size() == dist.get_world_size():
        yield dist.group.WORLD  # many copies have an odd one, two have none
    else:
        yield from _dimensions(mesh)


def _dimensions(mesh: Any) -> Iterator[Any]:
    for dimension in range(mesh.ndim):
        if mesh.size(dimension) > 1:
            yield mesh.get_group(dimension)


def shard_again(module: Any) -> None:
    """Shards FSDP2's parameters that an evaluation left whole, as state_dict() does.
    The optimizer does not have the whole ones, and the next step frees their memory."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")  # its import takes long
    for part in module.modules() if fsdp is not None else ():
        if isinstance(part, fsdp.FSDPModule):
            part.reshard()


def as_module(given: Any) -> Any:
    """Returns a module, or one thing with the tensors of a list of modules or of a state dict."""
    from torch.nn import Module, ModuleList

    if isinstance(given, Module):
        return given
    if isinstance(given, Mapping):
        return StateDict(given)
    if isinstance(given, list | tuple) and all(isinstance(one, Module) for one in given):
        chunks = ModuleList(given)
        chunks.training = all(one.training for one in given)
        return chunks
    raise OddrankError(
        f"a {type(given).__name__} is no model: give a torch module, a list of modules (chunks of"
        " a pipeline stage), or a state dict"
    )


def unwrapped(module: Any) -> Any:
    """Returns the module inside DDP and torch.compile, whose names have no prefix."""
    if isinstance(module, list | tuple):
        return as_module([unwrapped(one) for one in module])
    module = as_module(module)
    while True:
        if _is_ddp(module):
            module = module.module
        elif hasattr(module, "_orig_mod"):
            module = module._orig_mod
        else:
            return module


def _as_groups(given: Given, name: str) -> tuple[Any, ...]:
    import torch.distributed as dist

    if given is None:
        return ()
    if hasattr(given, "get_group") and hasattr(given, "ndim"):
        return tuple(over(given))
    several = tuple(given) if isinstance(given, Sequence) else (given,)
    # new_group() returns this number on the ranks that are not in the group.
    several = tuple(one for one in several if one != dist.GroupMember.NON_GROUP_MEMBER)
    for one in several:
        if not _is_group(one):
            raise OddrankError(
                f"groups= gives {name} a {type(one).__name__}, which is no process group: make one"
                " with torch.distributed.new_group"
            )
    return several


def _is_group(thing: Any) -> bool:
    import torch.distributed as dist

    return isinstance(thing, dist.ProcessGroup)


def _is_ddp(module: Any) -> bool:
    from torch.nn.parallel import DistributedDataParallel

    return isinstance(module, DistributedDataParallel)


def _tensors(module: Any) -> Iterator[tuple[str, Any]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


# Statistics of batch norm that each rank keeps for itself until the next forward pass.
OWN_STATISTICS = ("running_mean", "running_var")
_MOST_NUMBER = 1 << 63


class StateDict:
    """Has a state dict's tensors by their path, and is asked as a module is."""

    training = None

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._tensors = dict(tensors(content, ""))

    def modules(self) -> Iterator[Any]:
        return iter(())

    def named_parameters(self, **_: Any) -> Iterator[tuple[str, Any]]:
        return ((name, one) for name, one in self._tensors.items() if not _is_own(name))

    def named_buffers(self, **_: Any) -> Iterator[tuple[str, Any]]:
        return ((name, one) for name, one in self._tensors.items() if _is_own(name))


def _is_own(name: str) -> bool:
    return name.rpartition(".")[2] in OWN_STATISTICS


def tensors(thing: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields the tensors of nested mappings and lists by their path.
    An integer, such as a count of steps, is a tensor. Others may be a rank's own: LBFGS's loss."""
    import torch

    within = f"{name}." if name else ""
    if hasattr(thing, "data_ptr"):
        yield name, thing
    elif isinstance(thing, Mapping):
        for key in sorted(thing, key=str):
            yield from tensors(thing[key], f"{within}{key}")
    elif isinstance(thing, list | tuple):
        for i, one in enumerate(thing):
            yield from tensors(one, f"{within}{i}")
    elif type(thing) is int and -_MOST_NUMBER <= thing < _MOST_NUMBER:
        yield name, torch.tensor(thing, dtype=torch.int64, device="cpu")


def members(group: Any) -> tuple[int, ...]:
    """Returns the ranks of a group, in the order of its gathers."""
    import torch.distributed as dist

    return tuple(dist.get_process_group_ranks(group))


def gather(group: Any, data: bytes) -> list[bytes]:
    """Returns the bytes of each member. All members give equally many, at least one."""
    import torch
    import torch.distributed as dist

    device = _device(group)
    mine = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
    every = [torch.empty_like(mine) for _ in members(group)]
    dist.all_gather(every, mine, group=group)
    return [digests.content(one, 0, len(data)) for one in every]


def gather_any(group: Any, data: bytes) -> list[bytes]:
    """Returns the bytes of each member, which may be of any length: two gathers."""
    lengths = [
        int.from_bytes(one, "little") for one in gather(group, len(data).to_bytes(8, "little"))
    ]
    longest = max(lengths)
    if longest == 0:
        return [b"" for _ in lengths]
    padded = gather(group, data.ljust(longest, b"\0"))
    return [one[:length] for one, length in zip(padded, lengths, strict=True)]


def _device(group: Any) -> Any:
    """Returns a device whose tensors the group's backend sends: the CPU where it can."""
    import torch
    import torch.distributed as dist

    backends = str(dist.get_backend_config(group))
    if "cpu:" in backends or "cuda:" not in backends:
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def as_text(ranks: Sequence[int]) -> str:
    """Returns ranks as `first:last:step`, where they have one step; else all, by commas."""
    steps = {b - a for a, b in pairwise(ranks)}
    if len(ranks) > 2 and len(steps) == 1:
        return f"{ranks[0]}:{ranks[-1]}:{steps.pop()}"
    return ",".join(map(str, ranks))


def from_text(text: str) -> tuple[int, ...]:
    """Returns the ranks of `as_text`."""
    if ":" in text:
        first, last, step = map(int, text.split(":"))
        return tuple(range(first, last + (1 if step > 0 else -1), step))
    return tuple(map(int, text.split(",")))

"""A rank's state: parameters, buffers, gradients, optimizer state, and facts beside them."""

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oddrank.errors import OddrankError
from oddrank.replicas import groups
from oddrank.replicas.groups import Placed, Places, unwrapped

PARAMS, BUFFERS, GRADS, OPTIM = ALL = ("params", "buffers", "grads", "optim")


@dataclass(frozen=True)
class Entry:
    """A tensor to compare: the part of it that this rank holds."""

    name: str
    what: str
    tensor: Any
    groups: tuple[Any, ...]

    @property
    def dtype(self) -> str:
        return str(self.tensor.dtype).removeprefix("torch.")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def line(self) -> list[Any]:
        """Returns the properties that must be alike before the bits can be compared."""
        return [self.what, self.name, self.dtype, list(self.shape)]


@dataclass(frozen=True)
class Skipped:
    """A tensor that is not compared, and why."""

    name: str
    what: str
    why: str


def check_choice(what: Collection[str], known: Collection[str] = ALL) -> None:
    """Raises OddrankError if `what` has an unknown kind, or none."""
    if isinstance(what, str) or not what or not set(what) <= set(known):
        raise OddrankError(f"what={what!r}: give some of {', '.join(known)}, as a tuple")


def choose(
    module: Any, optimizer: Any, places: Places, what: Collection[str]
) -> tuple[list[Entry], list[Skipped]]:
    """Returns the tensors to compare, in an order that is alike on all ranks, and the others."""
    found: list[Entry] = []
    skipped: list[Skipped] = []
    for name, kind, tensor, placed in _every(module, optimizer, places, what):
        why = placed.why_not or unreadable(tensor)
        if not why and all(group.size() == 1 for group in placed.groups):
            why = "its group has one rank: no other rank has a copy"
        if why:
            skipped.append(Skipped(name, kind, why))
        else:
            found.append(Entry(name, kind, local(tensor), placed.groups))
    return found, skipped


def _every(
    module: Any, optimizer: Any, places: Places, what: Collection[str]
) -> Iterator[tuple[str, str, Any, Placed]]:
    """Yields name, kind, tensor and place of each tensor of the training."""
    inner = unwrapped(module)
    names = _names(inner.named_parameters(remove_duplicate=False))
    for parameter, name in names:
        placed = places(name, parameter)
        if PARAMS in what:
            yield name, PARAMS, parameter, placed
        if GRADS in what and (grad := parameter.grad) is not None:
            where = places(name, grad) if hasattr(grad, "placements") else placed
            yield f"{name}.grad", GRADS, grad, where
    own_statistics = _own_statistics(inner)
    for buffer, name in _names(inner.named_buffers(remove_duplicate=False)):
        placed = places(name, buffer)
        if id(buffer) in own_statistics:
            placed = Placed(why_not="batch norm keeps each rank's own until the next forward")
        if BUFFERS in what:
            yield name, BUFFERS, buffer, placed
    if OPTIM in what and optimizer is not None:
        yield from _optimizer(optimizer, {id(p): name for p, name in names}, places)


def _optimizer(
    optimizer: Any, names: dict[int, str], places: Places
) -> Iterator[tuple[str, str, Any, Placed]]:
    shards = type(optimizer).__name__ == "ZeroRedundancyOptimizer"
    for i, group in enumerate(optimizer.param_groups):
        for k, parameter in enumerate(group["params"]):
            name = names.get(id(parameter), f"group{i}.{k}")
            placed = places(name, parameter, known=id(parameter) in names)
            if shards:
                placed = Placed(why_not="ZeroRedundancyOptimizer gives each rank another part")
            state = optimizer.state.get(parameter, {})
            for own, value in groups.tensors(state, name.partition(" = ")[0]):
                if hasattr(value, "placements"):
                    where = places(name, value)
                elif value.numel() == 1 and not shards:
                    where = places.beside(name, parameter, placed)
                else:  # made from this rank's part of the parameter
                    where = placed
                yield own, OPTIM, value, where


def _names(named: Any) -> list[tuple[Any, str]]:
    """Returns each tensor once, with all names that share it: tied weights are one."""
    known: dict[int, tuple[Any, list[str]]] = {}
    for name, tensor in named:
        known.setdefault(id(tensor), (tensor, []))[1].append(name)
    return [(tensor, " = ".join(names)) for tensor, names in known.values()]


def _own_statistics(module: Any) -> set[int]:
    from torch.nn import SyncBatchNorm
    from torch.nn.modules.batchnorm import _BatchNorm

    if isinstance(module, groups.StateDict):
        return {id(buffer) for _, buffer in module.named_buffers()}
    return {
        id(buffer)
        for part in module.modules()
        if isinstance(part, _BatchNorm) and not isinstance(part, SyncBatchNorm)
        for name, buffer in part.named_buffers(recurse=False)
        if name in groups.OWN_STATISTICS
    }


def local(tensor: Any) -> Any:
    """Returns the part of a tensor that this rank holds, without its history."""
    tensor = tensor.detach()
    if hasattr(tensor, "placements"):
        tensor = tensor.to_local()
    # The result of a functional collective, which may still be under way.
    return tensor.wait() if type(tensor).__name__ == "AsyncCollectiveTensor" else tensor


def unreadable(tensor: Any) -> str:
    """Returns why a tensor can't be digested; "" if it can."""
    import torch
    from torch.nn.parameter import is_lazy
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if is_lazy(tensor):
        return "it has no shape before the first forward"
    own = local(tensor)
    if own.device.type == "meta":
        return "it is a meta tensor without values"
    if own.layout != torch.strided or own.is_nested:
        return f"its layout is {own.layout}: only strided tensors are compared"
    if own.is_quantized:
        return "quantized tensors are not compared"
    if is_traceable_wrapper_subclass(own):
        return f"it is a {type(own).__name__}, which has no memory of its own"
    return "its memory is freed" if own.numel() and not own.untyped_storage().size() else ""


def facts(module: Any, optimizer: Any, given: Mapping[str, Any]) -> dict[str, str]:
    """Returns this rank's facts as texts. given: the user's own, such as step or data position."""
    import torch

    known: dict[str, Any] = {
        "torch's version": torch.__version__,
        "the default dtype": torch.get_default_dtype(),
        "the float32 matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "training mode": module.training,
    }
    if torch.cuda.is_available():
        known["TF32 in cuDNN"] = torch.backends.cudnn.allow_tf32
        known["cuDNN benchmark mode"] = torch.backends.cudnn.benchmark
    for i, group in enumerate(optimizer.param_groups if optimizer is not None else ()):
        for key, value in sorted(group.items()):
            is_number = isinstance(value, torch.Tensor) and value.numel() == 1
            plain = value.item() if is_number else value
            if key != "params" and isinstance(plain, int | float | str | bool | tuple | type(None)):
                known[f"{key} of parameter group {i}"] = plain
    if "numpy" in sys.modules:
        known["numpy's version"] = sys.modules["numpy"].__version__
    for key, value in given.items():
        if not isinstance(key, str):
            raise OddrankError(f"facts= has the key {key!r}: give texts")
        known[key] = value
    return {key: str(value)[:2000] for key, value in known.items()}

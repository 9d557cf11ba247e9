"""Nested mappings and lists with tensors: a state dict, an optimizer's state."""

from collections.abc import Iterator, Mapping
from typing import Any

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

    A whole number, such as a count of steps, is a tensor. Other numbers may be a rank's own: LBFGS
    keeps the last loss.
    """
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
